package launch

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// During initialisation this is the process's first thread: what Linux keeps for each thread, like a Landlock domain, is kept for
// the one that executes the command.
func init() {
	if len(os.Args) > 0 && os.Args[0] == Name {
		spec, path, argv := parse(os.Args)
		err := run(&spec, path, argv)
		message := err.Error()
		_, _ = unix.Write(spec.Report, []byte(message))
		_, _ = unix.Write(2, []byte("sandbox launcher: "+message+"\n"))
		os.Exit(126)
	}
}

// run does not return but with an error.
func run(s *Spec, path string, argv []string) error {
	unix.CloseOnExec(s.Report)
	if s.Loopback {
		if err := loopbackUp(); err != nil {
			return fmt.Errorf("bring up the loopback interface: %w", err)
		}
	}
	if s.Mounts != nil {
		// What is mounted here must not spread to where it came from.
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
			return fmt.Errorf("make the mounts private: %w", err)
		}
	}
	for _, m := range s.Mounts {
		err := mount(m)
		if m.Optional && (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR)) {
			continue
		}
		if err == nil && m.Rights != 0 && s.Ruleset != 0 {
			err = addRights(s.Ruleset, m.Target, m.Rights)
		}
		if err != nil {
			return fmt.Errorf("mount over %s: %w", m.Target, err)
		}
	}
	if err := unix.Chdir(s.Dir); err != nil {
		return fmt.Errorf("enter %s: %w", s.Dir, err)
	}
	if err := dropCapabilities(s.Drop); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	if s.Ruleset != 0 {
		unix.CloseOnExec(s.Ruleset)
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("give up new privileges: %w", err)
		}
		if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(s.Ruleset), 0, 0); errno != 0 {
			return fmt.Errorf("enter the Landlock domain: %w", errno)
		}
	}
	return fmt.Errorf("start %s: %w", path, syscall.Exec(path, argv, os.Environ()))
}

func mount(m Mount) error {
	if m.Source == "" {
		return unix.Mount("devpts", m.Target, "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620")
	}
	if err := unix.Mount(m.Source, m.Target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil || !m.ReadOnly {
		return err
	}
	return unix.MountSetattr(unix.AT_FDCWD, m.Target, unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
}

func addRights(ruleset int, path string, rights uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	rule := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	runtime.KeepAlive(&rule)
	if errno != 0 {
		return errno
	}
	return nil
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}

// overFiles are the capabilities that a command of root keeps: those that a build or an installation below its directories needs.
const overFiles = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH | 1<<unix.CAP_FOWNER | 1<<unix.CAP_FSETID |
	1<<unix.CAP_KILL | 1<<unix.CAP_SETGID | 1<<unix.CAP_SETUID | 1<<unix.CAP_SETPCAP | 1<<unix.CAP_NET_BIND_SERVICE | 1<<unix.CAP_SETFCAP

// dropCapabilities takes back what the launcher was given for the mounts; an ordinary user has none then. For root, whose programs
// get all in the bounding set, that is made smaller.
func dropCapabilities(bounding bool) error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return err
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return err
	}
	if bounding && os.Geteuid() == 0 {
		for number := uintptr(0); ; number++ {
			if number < 64 && uint64(overFiles)>>number&1 == 1 {
				continue
			}
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, number, 0, 0, 0); err == unix.EINVAL {
				break // no such capability: that was the last
			} else if err != nil {
				return err
			}
		}
	}
	sets[0].Inheritable, sets[1].Inheritable = 0, 0
	return unix.Capset(&header, &sets[0])
}
