package executor_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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

// BenchmarkOutput512MiB is what a command prints, on one line and line by line, kept whole in a file. MiB is by how much the process grew
// meanwhile.
func BenchmarkOutput512MiB(b *testing.B) {
	const size = 512 << 20
	for _, output := range []struct{ name, command string }{
		{"one-line", fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x", size)},
		{"lines", fmt.Sprintf("yes | head -c %d", size)},
	} {
		b.Run(output.name+"/floor", func(b *testing.B) {
			dir := b.TempDir()
			b.SetBytes(size)
			for b.Loop() {
				copyBare(b, output.command, filepath.Join(dir, "out"))
			}
		})
		b.Run(output.name+"/executor", func(b *testing.B) {
			f := start(b, executor.Options{SpillLimit: 2 * size})
			grown := growth(b)
			b.SetBytes(size)
			for b.Loop() {
				r := f.run(b, output.command)
				path := r.GetStdout().GetSpillPath()
				if info, err := os.Stat(path); err != nil || info.Size() != size {
					b.Fatal("not spilled whole: ", err)
				}
				b.StopTimer()
				os.Remove(path)
				b.StartTimer()
			}
			b.ReportMetric(grown(), "MiB")
		})
	}
}

// copyBare copies what a command prints to a file, through a large pipe and a large buffer.
func copyBare(b *testing.B, command, path string) {
	file, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	r, w, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	_, _ = unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, 1<<20)
	cmd := bare(b, command)
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	w.Close()
	if _, err := io.CopyBuffer(struct{ io.Writer }{file}, struct{ io.Reader }{r}, make([]byte, 256<<10)); err != nil {
		b.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		b.Fatal(err)
	}
}

// growth gives by how many MiB the process has been larger than at the call.
func growth(b *testing.B) func() float64 {
	memory := func(field string) float64 {
		status, err := os.ReadFile("/proc/self/status")
		if err != nil {
			b.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(status), field+":")
		kB, err := strconv.Atoi(strings.Fields(rest)[0])
		if err != nil {
			b.Fatal(err)
		}
		return float64(kB) / 1024
	}
	runtime.GC()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil { // the peak begins anew
		b.Fatal(err)
	}
	before := memory("VmRSS")
	return func() float64 { return memory("VmHWM") - before }
}

// BenchmarkTrueFromALargeProcess is BenchmarkTrue with 1 GiB of other data in the executor's process: starting a command must not copy
// page tables.
func BenchmarkTrueFromALargeProcess(b *testing.B) {
	f := start(b, executor.Options{})
	b.Run("empty", func(b *testing.B) { measure(b, func() { f.run(b, "true") }) })
	data := make([]byte, 1<<30)
	for i := 0; i < len(data); i += os.Getpagesize() {
		data[i] = 1
	}
	b.Run("1GiB", func(b *testing.B) { measure(b, func() { f.run(b, "true") }) })
	runtime.KeepAlive(data)
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
