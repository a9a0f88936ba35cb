package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var environment = map[string]string{"NAME": "value", "EMPTY": "", "NUMBER": "7", "TRUTH": "true"}

func lookup(name string) (string, bool) {
	value, ok := environment[name]
	return value, ok
}

func load(t *testing.T, yaml string) (*Config, error) {
	t.Helper()
	return Parse("f.yaml", []byte(yaml), lookup)
}

func TestARowHasWhatTheFileSays(t *testing.T) {
	c, err := load(t, `
plugins:
  - id: bash                 # stable identity
    plugin: bash-local
    config:
      timeoutMs: 120000
      nested: {list: [1, two, false, null], text: "${NAME} $$NAME $NAME"}
  - id: own
    command: [./bin/own, --flag, "${NAME}"]
    env:
      A: ${NAME}
    disabled: true
`)
	if err != nil {
		t.Fatal(err)
	}
	bash, own := c.Rows[0], c.Rows[1]
	if bash.ID != "bash" || bash.Plugin != "bash-local" || bash.Where.String() != "f.yaml:3" || bash.Disabled {
		t.Errorf("got %+v", bash)
	}
	if got, want := bash.Config(), `{"nested":{"list":[1,"two",false,null],"text":"value $NAME $NAME"},"timeoutMs":120000}`; got != want {
		t.Errorf("config: got %s, want %s", got, want)
	}
	if !filepath.IsAbs(own.Command[0]) || !strings.HasSuffix(own.Command[0], "/bin/own") || own.Command[2] != "${NAME}" || !own.Disabled || own.Env["A"] != "value" || own.Config() != "{}" {
		t.Errorf("got %+v; variables are expanded in config and env only", own)
	}
}

func TestFaultsNameFileLineAndRemedy(t *testing.T) {
	for _, test := range []struct{ name, yaml, want string }{
		{"nothing", "", "f.yaml:1: the file is empty; a configuration has the key plugins"},
		{"a comment only", "# nothing\n", "f.yaml:1: the file is empty; a configuration has the key plugins"},
		{"a list", "- a\n", "f.yaml:1: the file must be a mapping, not a list"},
		{"a misspelt key", "plugin:\n", `f.yaml:1: unknown key "plugin"; did you mean "plugins"?`},
		{"a key in the wrong case", "plugins:\n- ID: a\n  plugin: b\n", `f.yaml:2: unknown key "ID"; did you mean "id"?`},
		{"a key like no other", "plugins:\n- id: a\n  plugin: b\n  wonderful: 1\n", `f.yaml:4: unknown key "wonderful"; known are build, command, config, disabled, env, id, plugin, source, watch`},
		{"no id", "plugins:\n- plugin: b\n", "f.yaml:2: a row needs an id"},
		{"an id that is not a plugin's", "plugins:\n- id: host\n  plugin: b\n", `f.yaml:2: id "host": it is what callers are told`},
		{"an id that is no id", "plugins:\n- id: A b\n  plugin: b\n", `f.yaml:2: id "A b": use lower-case letters`},
		{"the same id twice", "plugins:\n- {id: a, plugin: b}\n- {id: a, plugin: b}\n", `f.yaml:3: row id "a" is taken already, at f.yaml:2`},
		{"neither plugin nor command", "plugins:\n- id: a\n", `f.yaml:2: row "a" needs one of plugin, source and command`},
		{"both plugin and command", "plugins:\n- {id: a, plugin: b, command: [c]}\n", `f.yaml:2: row "a" needs one of plugin, source and command`},
		{"a command that is a string", "plugins:\n- {id: a, command: b c}\n", "f.yaml:2: command must be a list of strings, not a string"},
		{"watch without a command", "plugins:\n- {id: a, source: ./a, watch: [x]}\n", "f.yaml:2: watch goes with command"},
		{"an empty command", "plugins:\n- {id: a, command: []}\n", "f.yaml:2: command must name a program"},
		{"config that is a list", "plugins:\n- id: a\n  plugin: b\n  config: [1]\n", "f.yaml:4: config must be a mapping, not a list"},
		{"env that holds a number", "plugins:\n- id: a\n  plugin: b\n  env:\n    X: 5\n", "f.yaml:5: env X must be a string, not a number"},
		{"disabled that is a string", "plugins:\n- {id: a, plugin: b, disabled: maybe}\n", "f.yaml:2: disabled must be true or false, not a string"},
		{"a missing variable", "plugins:\n- id: a\n  plugin: b\n  config:\n    k: ${NOPE}\n", "f.yaml:5: environment variable NOPE is not set; set it, or give a default with ${NOPE:-…}"},
		{"an open brace", "plugins:\n- id: a\n  plugin: b\n  config: {k: \"${NOPE\"}\n", "f.yaml:4: ${NOPE lacks its closing brace"},
		{"a duplicate key", "plugins:\n- id: a\n  id: b\n", "f.yaml:3: mapping key \"id\" already defined"},
		{"broken YAML", "plugins:\n  - id: [\n", "f.yaml:2: "},
		{"two documents", "plugins: []\n---\nplugins: []\n", "f.yaml:3: a configuration is one YAML document"},
		{"an include that is not there", "include: [gone.yaml]\n", "f.yaml:1: include: open gone.yaml: no such file or directory"},
		{"a tool limit that is no number", "tools: {timeoutMs: soon}\n", "f.yaml:1: tools.timeoutMs must be an integer, at least 1"},
		{"a probation in the past", "reload: {probationMs: -1}\n", "f.yaml:1: reload.probationMs must be an integer, at least 0"},
		{"a tool limit of nothing", "tools: {timeoutMs: 0}\n", "f.yaml:1: tools.timeoutMs must be an integer, at least 1"},
		{"an unknown anchor", "plugins:\n- {id: a, plugin: *b}\n", `f.yaml:2: no anchor "b" before this place`},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := load(t, test.yaml)
			if err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestAllFaultsAreReportedAtOnce(t *testing.T) {
	_, err := load(t, "plugins:\n- id: a\n- plugin: b\n  oops: 1\n")
	if got := strings.Count(err.Error(), "\n") + 1; got != 3 {
		t.Errorf("got %d faults: %v", got, err)
	}
}

func TestByteOrderMarkAndCarriageReturnsAreHarmless(t *testing.T) {
	c, err := load(t, "\ufeffplugins:\r\n  - id: a\r\n    plugin: b\r\n    config:\r\n      k: v\r\n")
	if err != nil || c.Rows[0].Config() != `{"k":"v"}` || c.Rows[0].Where.Line != 2 {
		t.Errorf("got %+v, %v", c, err)
	}
}

func TestAnchorsAreExpanded(t *testing.T) {
	c, err := load(t, "plugins:\n- {id: a, plugin: x, config: &c {k: 1}}\n- {id: b, plugin: x, config: *c}\n")
	if err != nil || c.Rows[1].Config() != `{"k":1}` {
		t.Errorf("got %+v, %v", c, err)
	}
}

func TestIncludesAreRelativeToTheirFileAndComeFirst(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("main.yaml", "include: [sub/one.yaml]\nplugins:\n- {id: own, plugin: x}\n")
	write("sub/one.yaml", "include: [two.yaml]\nplugins:\n- {id: one, plugin: x}\n")
	write("sub/two.yaml", "plugins:\n- {id: two, command: [./p]}\n")
	c, err := Load(filepath.Join(dir, "main.yaml"), lookup)
	if err != nil {
		t.Fatal(err)
	}
	if c.Rows[0].ID != "two" || c.Rows[1].ID != "one" || c.Rows[2].ID != "own" {
		t.Errorf("got %+v", c.Rows)
	}
	if want := filepath.Join(dir, "sub", "p"); c.Rows[0].Command[0] != want {
		t.Errorf("a relative command is %q, want %q", c.Rows[0].Command[0], want)
	}
	write("loop.yaml", "include: [loop.yaml]\n")
	if _, err := Load(filepath.Join(dir, "loop.yaml"), lookup); err == nil || !strings.Contains(err.Error(), "the file includes itself") {
		t.Errorf("a file that includes itself: %v", err)
	}
}

func TestExpand(t *testing.T) {
	for _, test := range []struct{ in, want, err string }{
		{in: "plain", want: "plain"},
		{in: "${NAME}", want: "value"},
		{in: "a${NAME}b${NAME}", want: "avaluebvalue"},
		{in: "${EMPTY}", want: ""},
		{in: "${EMPTY:-default}", want: "default"},
		{in: "${NOPE:-}", want: ""},
		{in: "${NOPE:-a:-b}", want: "a:-b"},
		{in: "${NAME:?needed}", want: "value"},
		{in: "${NOPE:?the key of the service}", err: "environment variable NOPE is not set: the key of the service"},
		{in: "$$", want: "$"},
		{in: "$${NAME}", want: "${NAME}"},
		{in: "100$ $NAME", want: "100$ $NAME"},
		{in: "${}", err: "${}: use ${NAME}, ${NAME:-default} or ${NAME:?message}"},
		{in: "${a b}", err: "${a b}: use ${NAME}, ${NAME:-default} or ${NAME:?message}"},
	} {
		got, err := expand(test.in, lookup)
		if got != test.want || (err == nil) != (test.err == "") || err != nil && err.Error() != test.err {
			t.Errorf("%s: got %q, %v, want %q, %s", test.in, got, err, test.want, test.err)
		}
	}
}

const schema = `{"type":"object","additionalProperties":false,"required":["name"],"properties":{
	"name":{"type":"string"}, "timeoutMs":{"type":"integer","minimum":1}, "on":{"type":"boolean"},
	"list":{"type":["null","array"],"items":{"type":"string"}},
	"headers":{"type":"object","additionalProperties":{"type":"string"}},
	"deep":{"type":"object","additionalProperties":false,"properties":{"inner":{"type":"number"}}}}}`

func TestAConfigIsCheckedAgainstTheSchemaLineByLine(t *testing.T) {
	for _, test := range []struct{ name, config, want string }{
		{"all is well", "name: x\n      timeoutMs: 5\n      on: true\n      list: [a]\n      headers: {X: y}\n      deep: {inner: 1.5}", ""},
		{"numbers and booleans from variables", "name: ${NUMBER}\n      timeoutMs: ${NUMBER}\n      on: ${TRUTH}", ""},
		{"a missing key", "on: true", `f.yaml:5: row "a": config needs the key "name"`},
		{"an unknown key", "name: x\n      timeoutMS: 5", `f.yaml:6: row "a": unknown key "timeoutMS" in config; did you mean "timeoutMs"?`},
		{"an unknown key further down", "name: x\n      deep:\n        iner: 5", `f.yaml:7: row "a": unknown key "iner" in config.deep; did you mean "inner"?`},
		{"a string for a number", `name: x` + "\n      timeoutMs: \"5\"", `f.yaml:6: row "a": config.timeoutMs must be an integer, not a string`},
		{"a number out of range", "name: x\n      timeoutMs: 0", `f.yaml:6: row "a": config.timeoutMs does not fit`},
		{"a wrong item", "name: x\n      list:\n        - a\n        - 5", `f.yaml:8: row "a": config.list[1] must be a string, not a number`},
		{"a wrong free value", "name: x\n      headers:\n        X: 5", `f.yaml:7: row "a": config.headers.X must be a string, not a number`},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, err := load(t, "plugins:\n- id: a\n  plugin: x\n  config:\n      "+test.config+"\n")
			if err != nil {
				t.Fatal(err)
			}
			err = c.Rows[0].Validate(schema)
			if (err == nil) != (test.want == "") || err != nil && !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestAPluginWithoutASchemaTakesNoConfig(t *testing.T) {
	c, err := load(t, "plugins:\n- {id: a, plugin: x, config: {k: 1}}\n- {id: b, plugin: x}\n")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Rows[0].Validate(""); err == nil || !strings.Contains(err.Error(), `unknown key "k" in config; none is known here`) {
		t.Errorf("got %v", err)
	}
	if err := c.Rows[1].Validate(""); err != nil {
		t.Error(err)
	}
}

func TestDiffTouchesOnlyRowsWhoseEffectiveEntryChanged(t *testing.T) {
	const before = "plugins:\n- {id: same, plugin: x, config: {a: 1, b: 2}}\n- {id: config, plugin: x, config: {a: 1}}\n- {id: plugin, plugin: x}\n" +
		"- {id: env, command: [x], env: {A: a}}\n- {id: off, plugin: x}\n- {id: gone, plugin: x}\n"
	const after = "# moved down, keys in another order\n\nplugins:\n- {id: new, plugin: x}\n- {plugin: x, config: {b: 2, a: 1}, id: same}\n- {id: config, plugin: x, config: {a: 2}}\n" +
		"- {id: plugin, plugin: y}\n- {id: env, command: [x], env: {A: b}}\n- {id: off, plugin: x, disabled: true}\n"
	from, err := load(t, before)
	if err != nil {
		t.Fatal(err)
	}
	to, err := load(t, after)
	if err != nil {
		t.Fatal(err)
	}
	d := Diff(from, to)
	ids := func(rows []Row) string {
		var list []string
		for _, r := range rows {
			list = append(list, r.ID)
		}
		return strings.Join(list, " ")
	}
	if ids(d.Added) != "new" || ids(d.Changed) != "config plugin env off" || ids(d.Removed) != "gone" {
		t.Errorf("added %q, changed %q, removed %q", ids(d.Added), ids(d.Changed), ids(d.Removed))
	}
	if same := Diff(from, from); !same.IsEmpty() {
		t.Errorf("a configuration differs from itself: %+v", same)
	}
}
