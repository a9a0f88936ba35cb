package agent_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/dsh-go/dsh/sdk/agents"
	"github.com/dsh-go/dsh/sdk/api/agentsv1"
	"github.com/dsh-go/dsh/sdk/llm"
)

func TestASubscriberGetsWhatStandsInTheLogByteForByte(t *testing.T) {
	w := newWorld(t)
	w.model, w.tool = asks([]string{"c1 bash {1}"}), echo
	session := w.create()
	stream, err := agentsv1.NewAgentsClient(w.instance.Conn()).Prompt(t.Context(), &agentsv1.PromptRequest{
		SessionId: session, PromptId: "p", Content: []*agentsv1.ContentBlock{{Block: &agentsv1.ContentBlock_Text{Text: "<&>\u2028é"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var live []byte
	for {
		answer, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range answer.GetEvents().GetEvents() {
			live = append(append(live, e.GetJson()...), '\n')
			if decoded, err := agents.Decode(e.GetJson()); err != nil || decoded.Seq != e.GetSeq() {
				t.Errorf("event %d decodes to %+v, %v", e.GetSeq(), decoded, err)
			}
		}
	}
	_, logged, _ := bytes.Cut(readFile(t, w.logFile(session)), []byte("\n"))
	if !bytes.Equal(live, logged) {
		t.Errorf("live:\n%s\nlogged:\n%s", live, logged)
	}
}

func TestASubscriberResumesAfterAnyNumber(t *testing.T) {
	w := newWorld(t)
	long := strings.Repeat("long ", 15_000) // longer than any buffer
	w.model = func(_ context.Context, _ int, _ *llm.Request, emit emit) (llm.Reason, error) {
		return llm.Stop, errors.Join(emit(llm.TextEvent("short")), emit(llm.TextEvent(long)), emit(llm.TextEvent("end")))
	}
	session := w.create()
	w.rest(w.send(session, "one"))
	all := w.history(session)
	for after := range len(all) + 1 {
		for _, follow := range []bool{false, true} {
			events, err := w.Subscribe(t.Context(), session, uint64(after), follow)
			if err != nil {
				t.Fatal(err)
			}
			got := w.rest(events)
			if len(got) != len(all)-after || len(got) > 0 && (got[0].Seq != uint64(after)+1 || show(got) != show(all[after:])) {
				t.Errorf("after %d: %d events", after, len(got))
			}
		}
	}
	events, err := w.Subscribe(t.Context(), session, uint64(len(all)+1), false)
	if err == nil {
		_, err = events.Next()
	}
	wantStatus(t, err, codes.OutOfRange, fmt.Sprintf("session %s has no event %d: the last is %d", session, len(all)+1, len(all)))
}

func TestAFollowerInTheMiddleOfATurnLosesAndRepeatsNothing(t *testing.T) {
	w := newWorld(t)
	next := make(chan struct{})
	w.model = func(ctx context.Context, _ int, _ *llm.Request, emit emit) (llm.Reason, error) {
		for i := range 50 {
			select {
			case <-next:
			case <-ctx.Done():
				return 0, ctx.Err()
			}
			if err := emit(llm.TextEvent(fmt.Sprint(i, " "))); err != nil {
				return 0, err
			}
		}
		return llm.Stop, nil
	}
	session := w.create()
	prompt := w.send(session, "hi")
	var seen uint64
	for range 10 {
		next <- struct{}{}
		seen = w.until(prompt, "assistant/chunk").Seq
	}
	followed, err := w.Subscribe(t.Context(), session, seen, true)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for range 40 {
			next <- struct{}{}
		}
	}()
	got := w.rest(followed)
	equal(t, "follower", show(got), show(w.rest(prompt)))
	if got[0].Seq != seen+1 || got[len(got)-1].Type != "turn/end" {
		t.Errorf("from %d to %s, after %d", got[0].Seq, got[len(got)-1].Type, seen)
	}
}

func TestASleepingReaderLosesNothingAndOneThatWentAwayHoldsNothingBack(t *testing.T) {
	w := newWorld(t)
	const pieces = 64
	piece := strings.Repeat("x", 32<<10)
	w.model = func(_ context.Context, _ int, _ *llm.Request, emit emit) (llm.Reason, error) {
		for i := range pieces {
			if err := emit(llm.TextEvent(fmt.Sprint(i, piece))); err != nil {
				return 0, err
			}
		}
		return llm.Stop, nil
	}
	session := w.create()
	ctx, cancel := context.WithCancel(t.Context())
	gone, err := w.Prompt(ctx, agents.Prompt{SessionID: session, PromptID: "p", Content: text("hi")})
	if err != nil {
		t.Fatal(err)
	}
	w.until(gone, "assistant/chunk")
	sleeping, err := w.Subscribe(t.Context(), session, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	other := w.create()
	w.rest(w.send(other, "hi")) // meanwhile
	cancel()
	chunks := 0
	for _, e := range w.rest(sleeping) {
		if c, ok := e.Data.(*agents.AssistantChunk); ok {
			if c.Text != fmt.Sprint(chunks, piece) {
				t.Fatalf("chunk %d is another", chunks)
			}
			chunks++
		}
	}
	if chunks != pieces {
		t.Errorf("%d chunks", chunks)
	}
}

func TestAnAnswerWithoutEndIsCutOff(t *testing.T) {
	w := newWorld(t)
	w.model = func(ctx context.Context, n int, _ *llm.Request, emit emit) (llm.Reason, error) {
		for piece := strings.Repeat("x", 1<<20); n == 0; {
			if err := emit(llm.TextEvent(piece)); err != nil {
				return 0, ctx.Err()
			}
		}
		return llm.Stop, emit(llm.TextEvent("short"))
	}
	session := w.create()
	all := w.rest(w.send(session, "hi"))
	if end := all[len(all)-1].Data.(*agents.TurnEnd); end.Error != "the model's answer is larger than 8 MiB" {
		t.Errorf("%+v", end)
	}
	if got := show(w.rest(w.send(session, "again"))); !strings.HasSuffix(got, "turn/end completed") {
		t.Error(got)
	}
}

func TestALogThatCannotGrowFailsTheTurnAndHealsLater(t *testing.T) {
	w := newWorld(t)
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	limit := func(bytes uint64) {
		t.Helper()
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: min(bytes, old.Max), Max: old.Max}); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { limit(old.Cur) })
	session := w.create()
	w.model = func(_ context.Context, n int, _ *llm.Request, emit emit) (llm.Reason, error) {
		if n > 0 {
			return llm.Stop, emit(llm.TextEvent("fine"))
		}
		if err := emit(llm.TextEvent("fits")); err != nil {
			return 0, err
		}
		info, err := os.Stat(w.logFile(session))
		if err != nil {
			return 0, err
		}
		limit(uint64(info.Size()) + 150)
		return llm.Stop, emit(llm.TextEvent("fits not"))
	}
	events := w.send(session, "hi")
	w.until(events, "step/start")
	for {
		_, err := events.Next()
		if errors.Is(err, io.EOF) {
			t.Fatal("the turn ended as if it had been logged")
		}
		if err != nil {
			wantStatus(t, err, codes.Internal, "write the log of session "+session+": write "+w.logFile(session)+": file too large")
			break
		}
	}
	limit(old.Cur)
	if got := show(w.rest(w.send(session, "again"))); !strings.HasSuffix(got, "turn/end completed") {
		t.Error(got)
	}
	history := w.history(session)
	if err := wellFormed(readFile(t, w.logFile(session)), history[len(history)-1].Seq); err != nil {
		t.Error(err)
	}
}
