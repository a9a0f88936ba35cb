package launch

import (
	"reflect"
	"slices"
	"testing"
)

func TestACommandLineSaysAllOfASpec(t *testing.T) {
	for name, spec := range map[string]Spec{
		"nothing": {Dir: "/"},
		"everything": {
			Report: 5, Loopback: true, Dir: "/with=sign\nand line", Drop: true, Ruleset: 6,
			Mounts: []Mount{
				{Source: "/a", Target: "/b", ReadOnly: true}, {Target: "/dev/pts", Optional: true, Rights: 1<<63 | 7}, {Source: "exec=/x", Target: "dir=/y"},
			},
		},
		"a mount namespace without mounts": {Dir: "/", Mounts: []Mount{}},
	} {
		t.Run(name, func(t *testing.T) {
			argv := []string{"bash", "-c", "exec=1"}
			got, path, command := parse(spec.Argv("/bin/bash", argv))
			if !reflect.DeepEqual(got, spec) || path != "/bin/bash" || !slices.Equal(command, argv) {
				t.Errorf("got %+v, %s, %q", got, path, command)
			}
		})
	}
}
