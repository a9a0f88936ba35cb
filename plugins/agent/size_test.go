package agent_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/dsh-go/dsh/sdk/llm"
)

func TestAnIdleSessionIsSmall(t *testing.T) {
	w := newWorld(t)
	heap := func() uint64 {
		runtime.GC()
		runtime.GC() // what pools kept is gone after the second
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	const sessions = 200
	w.rest(w.send(w.create(), "warm up"))
	before, goroutines := heap(), runtime.NumGoroutine()
	for range sessions {
		w.rest(w.send(w.create(), "hi"))
	}
	w.mu.Lock()
	w.requests = nil
	w.mu.Unlock()
	each := (int64(heap()) - int64(before)) / sessions
	t.Logf("%d bytes and %d goroutines for %d sessions", each, runtime.NumGoroutine()-goroutines, sessions)
	if each > 64<<10 {
		t.Errorf("an idle session takes %d bytes", each)
	}
}

// BenchmarkTurn is a turn of one short answer, at the end of sessions of different lengths.
func BenchmarkTurn(b *testing.B) {
	for _, turns := range []int{0, 1000} {
		b.Run(fmt.Sprintf("after=%d", turns), func(b *testing.B) {
			w := newWorld(b)
			w.model = func(_ context.Context, _ int, _ *llm.Request, emit emit) (llm.Reason, error) {
				return llm.Stop, emit(llm.TextEvent("answer"))
			}
			session := w.create()
			for i := range turns {
				w.rest(w.send(session, fmt.Sprint("before ", i)))
			}
			n := 0
			for b.Loop() {
				n++
				w.rest(w.send(session, fmt.Sprint("prompt ", n)))
			}
		})
	}
}

// BenchmarkChunk is one chunk's way from the model through the log to a reader.
func BenchmarkChunk(b *testing.B) {
	w := newWorld(b)
	w.model = func(_ context.Context, _ int, _ *llm.Request, emit emit) (llm.Reason, error) {
		for range b.N {
			if err := emit(llm.TextEvent("word ")); err != nil {
				return 0, err
			}
		}
		return llm.Stop, nil
	}
	session := w.create()
	b.ResetTimer()
	w.rest(w.send(session, "hi"))
}
