package launch

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// probeName is the first argument of a probe.
const probeName = "dsh-sandbox-probe"

// Probe is a command that tries what a sandbox must not allow, and what it must. What is empty is not tried.
type Probe struct {
	Secret  string // a file that must not be readable
	Outside string // a directory that must not be writable
	Inside  string // a directory that must be
	Network bool   // nothing beyond the loopback interface may be reachable
}

// Argv is the command line of the probe.
func (p *Probe) Argv() []string {
	argv := []string{probeName, p.Secret, p.Outside, p.Inside, ""}
	if p.Network {
		argv[4] = "network"
	}
	return argv
}

func init() {
	if len(os.Args) == 5 && os.Args[0] == probeName {
		p := Probe{Secret: os.Args[1], Outside: os.Args[2], Inside: os.Args[3], Network: os.Args[4] != ""}
		if err := p.run(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

func (p *Probe) run() error {
	if p.Secret != "" {
		if text, err := os.ReadFile(p.Secret); err == nil && len(text) > 0 {
			return fmt.Errorf("a file could be read that must not be")
		}
	}
	if p.Outside != "" {
		if err := os.WriteFile(p.Outside+"/probe", nil, 0o600); err == nil {
			return fmt.Errorf("a file could be written that must not be")
		}
	}
	if p.Inside != "" {
		if err := os.WriteFile(p.Inside+"/probe", nil, 0o600); err != nil {
			return fmt.Errorf("the workspace cannot be written: %w", err)
		}
	}
	if p.Network {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil
		}
		nowhere := unix.SockaddrInet4{Port: 9, Addr: [4]byte{192, 0, 2, 1}}
		if err := unix.Connect(fd, &nowhere); err == nil {
			return fmt.Errorf("there is a way to the network")
		}
	}
	return nil
}
