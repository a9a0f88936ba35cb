package bashsandbox

import (
	"strings"
	"syscall"
	"testing"
)

func TestTheKernelsLandlock(t *testing.T) {
	for _, test := range []struct {
		name string
		abi  int
		err  error
		want string // empty: it does
	}{
		{"none in the kernel, or filtered", -1, syscall.ENOSYS, "this system has no Landlock (function not implemented)"},
		{"switched off", -1, syscall.EOPNOTSUPP, "add landlock to the lsm= parameter"},
		{"without truncation", 2, nil, "the kernel's Landlock is too old: version 2, and 3 is needed"},
		{"the least", 3, nil, ""},
		{"a later one", 12, nil, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := checkABI(test.abi, test.err)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "mode: full")) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// A right that a kernel does not know must not be asked of it, and one that it knows must be.
func TestRightsByVersion(t *testing.T) {
	for abi, want := range map[int]uint64{3: 1<<15 - 1, 4: 1<<15 - 1, 5: 1<<16 - 1, 8: 1<<16 - 1, 9: 1<<17 - 1, 11: 1<<17 - 1} {
		if got := handled(abi); got.HandledAccessFS != want || (got.Scoped != 0) != (abi >= 6) || got.HandledAccessNet != 0 {
			t.Errorf("version %d: %+v", abi, got)
		}
	}
}
