package permissions

import (
	"encoding/json"
	"testing"

	"github.com/dsh-go/dsh/sdk/api/toolsv1"
	"github.com/dsh-go/dsh/sdk/plugintest"
)

func bash(command string) *toolsv1.Call {
	arguments, _ := json.Marshal(map[string]string{"command": command, "description": "x"})
	return &toolsv1.Call{Name: "bash", Arguments: string(arguments)}
}

func TestTheFirstRuleThatFitsDecides(t *testing.T) {
	rules := []Rule{
		{Tool: "bash", Command: "git push*", Action: Deny, Reason: "pushing is left to people"},
		{Tool: "bash", Command: "git *", Action: Allow},
		{Tool: "bash", Command: "ls", Action: Allow},
		{Tool: "bash", Command: "make*", Action: Ask, Reason: "it may take long"},
		{Tool: "bash_*", Action: Allow},
		{Tool: "bash", Command: "echo a; *", Action: Allow},
	}
	for _, test := range []struct {
		name string
		call *toolsv1.Call
		mode Mode
		want verdict
	}{
		{"denied", bash("git push origin"), ModeAsk, verdict{action: Deny, reason: "pushing is left to people"}},
		{"denied in every mode", bash("git push"), ModeAuto, verdict{action: Deny, reason: "pushing is left to people"}},
		{"allowed", bash("git status"), ModeAsk, verdict{action: Allow}},
		{"allowed in read-only mode", bash("git status"), ModeReadOnly, verdict{action: Allow}},
		{"a pattern is for the whole command", bash("ls -l"), ModeAsk, verdict{action: Ask, key: "bash"}},
		{"what goes on with another command is not allowed with it", bash("git status; rm -rf /"), ModeAsk, verdict{action: Ask, key: "bash"}},
		{"nor what pipes", bash("git log | sh"), ModeAsk, verdict{action: Ask, key: "bash"}},
		{"nor what substitutes", bash("git log $(rm x)"), ModeAsk, verdict{action: Ask, key: "bash"}},
		{"nor what redirects", bash("git log > ~/.bashrc"), ModeAsk, verdict{action: Ask, key: "bash"}},
		{"nor what has a second line", bash("git log\nrm x"), ModeAsk, verdict{action: Ask, key: "bash"}},
		{"unless the pattern says so", bash("echo a; echo b"), ModeAsk, verdict{action: Allow}},
		{"a denial reaches compound commands", bash("git push; true"), ModeAsk, verdict{action: Deny, reason: "pushing is left to people"}},
		{"asked, with the reason", bash("make all"), ModeAsk, verdict{action: Ask, reason: "it may take long", key: "bash rule 4"}},
		{"not asked in auto mode", bash("make all"), ModeAuto, verdict{action: Allow}},
		{"refused in read-only mode", bash("make all"), ModeReadOnly, verdict{action: Deny, reason: "it may take long"}},
		{"no rule: asked", bash("rm x"), ModeAsk, verdict{action: Ask, key: "bash"}},
		{"no rule: allowed in auto mode", bash("rm x"), ModeAuto, verdict{action: Allow}},
		{"no rule: refused in read-only mode", bash("rm x"), ModeReadOnly, verdict{action: Deny, reason: "no rule allows this call, and the session is in read-only mode"}},
		{"an unknown mode asks", bash("rm x"), "wild", verdict{action: Ask, key: "bash"}},
		{"by the tool's name", &toolsv1.Call{Name: "bash_kill", Arguments: `{"task_id":"bash-1"}`}, ModeAsk, verdict{action: Allow}},
		{"a command that comes twice is no command", &toolsv1.Call{Name: "bash", Arguments: `{"command":"ls","command":"rm x"}`}, ModeAsk, verdict{action: Ask, key: "bash"}},
		{"a key in another case is no command", &toolsv1.Call{Name: "bash", Arguments: `{"Command":"ls"}`}, ModeAsk, verdict{action: Ask, key: "bash"}},
		{"arguments that are no object", &toolsv1.Call{Name: "bash", Arguments: `["ls"]`}, ModeAsk, verdict{action: Ask, key: "bash"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, err := compile(Config{Rules: rules, Mode: ModeAsk})
			if err != nil {
				t.Fatal(err)
			}
			if got := p.judge(test.call, test.mode); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestAConfigurationThatMakesNoSenseFailsTheActivation(t *testing.T) {
	for want, config := range map[string]Config{
		`rpc error: code = FailedPrecondition desc = mode "loose": use ask, auto or read-only`:         {Mode: "loose"},
		`rpc error: code = FailedPrecondition desc = rules[0]: action "maybe": use allow, ask or deny`: {Mode: ModeAsk, Rules: []Rule{{Action: "maybe"}}},
	} {
		if _, err := plugintest.Activate(t, Plugin(), plugintest.Options{Config: config}); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestTheHookAnswersInTheModeOfTheSession(t *testing.T) {
	i := plugintest.Start(t, Plugin(), plugintest.Options{Config: Config{Mode: ModeAuto}})
	client := toolsv1.NewToolHookClient(i.Conn())
	modes, err := client.Modes(t.Context(), &toolsv1.ModesRequest{})
	if err != nil || len(modes.GetModes()) != 3 || modes.GetModes()[0].GetId() != "auto" {
		t.Errorf("got %v, %v, want three modes, the configured one first", modes, err)
	}
	call := bash("rm x")
	answer, err := client.Before(t.Context(), &toolsv1.BeforeRequest{Call: call})
	if err != nil || answer.GetAllow() == nil {
		t.Errorf("in the default mode: %v, %v, want allow", answer, err)
	}
	call.Mode = "ask"
	answer, err = client.Before(t.Context(), &toolsv1.BeforeRequest{Call: call})
	if err != nil || answer.GetAsk().GetKey() != "bash" {
		t.Errorf("in mode ask: %v, %v, want ask", answer, err)
	}
	call.Mode = "read-only"
	answer, err = client.Before(t.Context(), &toolsv1.BeforeRequest{Call: call})
	if err != nil || answer.GetDeny() == nil {
		t.Errorf("in mode read-only: %v, %v, want deny", answer, err)
	}
}
