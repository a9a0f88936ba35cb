package bashsandbox_test

import (
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	bashsandbox "github.com/dsh-go/dsh/plugins/bash-sandbox"
	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/bash"
	"github.com/dsh-go/dsh/sdk/executor"
)

// BenchmarkTrue is what the confinement of a command costs, beside the same command without it. Compare within one run:
// go test -run '^$' -bench . ./plugins/bash-sandbox
func BenchmarkTrue(b *testing.B) {
	b.Run("floor", func(b *testing.B) {
		measure(b, func() {
			cmd := exec.Command("bash", "-c", "true")
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			if _, err := cmd.Output(); err != nil {
				b.Fatal(err)
			}
		})
	})
	b.Run("unconfined", func(b *testing.B) {
		plugin := sdk.Define(sdk.Manifest{Name: "bash-plain", Version: "1.0.0", Provides: []sdk.Seam{bash.Seam}}, sdk.NoConfig{},
			func(c *sdk.Context, _ sdk.NoConfig) error { return executor.Serve(c, executor.Options{}) })
		f := startPlugin(b, plugin, nil)
		measure(b, func() { f.run(b, "true") })
	})
	for name, config := range map[string]map[string]any{
		"workspace-write":                {},
		"workspace-write, network":       {"network": true},
		"workspace-write, no namespaces": {"network": true, "namespaces": "off"},
		"read-only":                      {"mode": "read-only"},
		"full, no network":               {"mode": "full"},
	} {
		b.Run(name, func(b *testing.B) {
			f := startPlugin(b, bashsandbox.Plugin(), config)
			measure(b, func() { f.run(b, "true") })
		})
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
