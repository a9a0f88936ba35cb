package bashlocal

import (
	"reflect"
	"testing"
)

func TestTheLimitsOfARowWithoutConfig(t *testing.T) {
	want := Config{
		Shell: "bash", TimeoutMs: 120_000, MaxTimeoutMs: 600_000, KillGraceMs: 3000, OutputLimitBytes: 64_000, SpillLimitBytes: 67_108_864,
	}
	if !reflect.DeepEqual(defaults, want) {
		t.Errorf("got %+v, want %+v", defaults, want)
	}
}
