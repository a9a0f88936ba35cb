package process

import (
	"os"
	"testing"
)

func TestRSS(t *testing.T) {
	if own := RSS(os.Getpid()); own < 1<<20 || own > 1<<32 {
		t.Errorf("this process has %d bytes", own)
	}
	if none := RSS(0); none != 0 {
		t.Errorf("no process has %d bytes", none)
	}
	if none := RSS(1 << 30); none != 0 { // above the largest process id
		t.Errorf("a process that does not exist has %d bytes", none)
	}
}
