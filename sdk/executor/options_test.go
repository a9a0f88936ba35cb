package executor

import (
	"reflect"
	"testing"
	"time"
)

func TestTheLimitsThatHoldWhenNoneAreNamed(t *testing.T) {
	o := Options{Cwd: "/w"}
	if err := o.setDefaults(); err != nil {
		t.Fatal(err)
	}
	want := Options{
		Shell: "bash", Cwd: "/w", Timeout: 120_000 * time.Millisecond, MaxTimeout: 600_000 * time.Millisecond, KillGrace: 3000 * time.Millisecond,
		OutputLimit: 64_000, SpillLimit: 67_108_864,
	}
	if !reflect.DeepEqual(o, want) {
		t.Errorf("got %+v, want %+v", o, want)
	}
}
