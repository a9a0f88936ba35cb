package executor_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dsh-go/dsh/sdk/api/bashv1"
	"github.com/dsh-go/dsh/sdk/executor"
)

// Each benchmark has its floor beside it: the same work by the plainest Go, without anything an executor is for. Compare within one
// run: go test -run '^$' -bench . ./sdk/executor

// bare starts a command as the floor does: a session of its own, two pipes.
func bare(b *testing.B, command string) *exec.Cmd {
	cmd := exec.Command("bash", "-c", command)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

func runBare(b *testing.B, command string) {
	cmd := bare(b, command)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(func() { _, _ = io.Copy(io.Discard, stderr) })
	_, _ = io.Copy(io.Discard, stdout)
	reading.Wait()
	if err := cmd.Wait(); err != nil {
		b.Fatal(err)
	}
}

// measure reports the median of an operation's times.
func measure(b *testing.B, operation func()) {
	var times []time.Duration
	for b.Loop() {
		began := time.Now()
		operation()
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds()), "p50-µs")
}

func BenchmarkTrue(b *testing.B) {
	b.Run("floor", func(b *testing.B) { measure(b, func() { runBare(b, "true") }) })
	b.Run("executor", func(b *testing.B) {
		f := start(b, executor.Options{})
		measure(b, func() { f.run(b, "true") })
	})
}

func BenchmarkTrueBy32(b *testing.B) {
	by32 := func(b *testing.B, operation func()) {
		work := make(chan struct{})
		var callers sync.WaitGroup
		for range 32 {
			callers.Go(func() {
				for range work {
					operation()
				}
			})
		}
		for b.Loop() {
			work <- struct{}{}
		}
		close(work)
		callers.Wait()
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
	}
	b.Run("floor", func(b *testing.B) { by32(b, func() { runBare(b, "true") }) })
	b.Run("executor", func(b *testing.B) {
		f := start(b, executor.Options{})
		by32(b, func() { f.run(b, "true") })
	})
}

// BenchmarkStart is a start in the background, with many tasks that run already.
func BenchmarkStart(b *testing.B) {
	for _, many := range []int{0, 1000} {
		b.Run(fmt.Sprint("besides-", many), func(b *testing.B) {
			f := start(b, executor.Options{})
			for range many {
				f.task(b, "0123456789abcdef0123456789abcdef", "sleep 1000")
			}
			measure(b, func() { f.task(b, "0123456789abcdef0123456789abcdef", "true") })
		})
	}
}

func BenchmarkOutput512MiB(b *testing.B) {
	const command = "head -c 536870912 /dev/zero"
	b.Run("floor", func(b *testing.B) {
		b.SetBytes(512 << 20)
		dir := b.TempDir()
		for b.Loop() {
			file, err := os.Create(filepath.Join(dir, "out"))
			if err != nil {
				b.Fatal(err)
			}
			cmd := bare(b, command)
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				b.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				b.Fatal(err)
			}
			if _, err := io.CopyBuffer(struct{ io.Writer }{file}, struct{ io.Reader }{stdout}, make([]byte, 256<<10)); err != nil {
				b.Fatal(err)
			}
			if err := cmd.Wait(); err != nil {
				b.Fatal(err)
			}
			file.Close()
		}
	})
	b.Run("executor", func(b *testing.B) {
		b.SetBytes(512 << 20)
		f := start(b, executor.Options{SpillLimit: 1 << 30})
		for b.Loop() {
			r := f.run(b, command)
			if info, err := os.Stat(r.GetStdout().GetSpillPath()); err != nil || info.Size() != 512<<20 {
				b.Fatal("not spilled whole: ", err)
			}
			b.StopTimer()
			os.Remove(r.GetStdout().GetSpillPath())
			b.StartTimer()
		}
	})
}

func BenchmarkTasks1000(b *testing.B) {
	const command, many = "sleep 1; echo done", 1000
	b.Run("floor", func(b *testing.B) {
		for b.Loop() {
			var all sync.WaitGroup
			for range many {
				cmd := bare(b, command)
				stdout, err := cmd.StdoutPipe()
				if err != nil {
					b.Fatal(err)
				}
				if err := cmd.Start(); err != nil {
					b.Fatal(err)
				}
				all.Go(func() {
					_, _ = io.Copy(io.Discard, stdout)
					_ = cmd.Wait()
				})
			}
			all.Wait()
		}
	})
	b.Run("executor", func(b *testing.B) {
		f := start(b, executor.Options{})
		for b.Loop() {
			before := len(f.events.all())
			for i := range many {
				if _, err := f.Start(b.Context(), &bashv1.Command{Command: command, SessionId: fmt.Sprint(i)}); err != nil {
					b.Fatal(err)
				}
			}
			eventually(b, "all told", func() bool { return len(f.events.all()) == before+many })
		}
	})
}
