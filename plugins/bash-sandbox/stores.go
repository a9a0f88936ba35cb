package bashsandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// homeStores hold credentials, below the home directory.
var homeStores = []string{
	".ssh", ".gnupg", ".netrc", "_netrc", ".git-credentials", ".config/git/credentials", ".config/gh", ".config/hub", ".config/glab-cli",
	".aws", ".azure", ".config/gcloud", ".config/doctl", ".oci", ".kube", ".docker", ".config/containers/auth.json", ".config/helm",
	".terraform.d/credentials.tfrc.json", ".terraformrc", ".vault-token", ".config/rclone", ".config/op", ".config/sops", ".config/age",
	".npmrc", ".yarnrc.yml", ".pypirc", ".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials", ".bundle/config",
	".m2/settings.xml", ".m2/settings-security.xml", ".gradle/gradle.properties", ".composer/auth.json", ".config/composer/auth.json",
	".pgpass", ".my.cnf", ".mylogin.cnf", ".password-store", ".local/share/keyrings", ".local/share/kwalletd", ".config/github-copilot",
	".codex", ".claude", ".claude.json", ".config/dsh", ".mozilla", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware",
	".config/microsoft-edge",
}

// systemStores hold credentials of the machine or the container.
var systemStores = []string{"/run/secrets", "/var/run/secrets"}

// services are sockets, and directories of sockets, by which other programs take orders from this user: to run something unconfined, to
// sign with a key, to see the screen.
var services = []string{
	"/run/dbus", "/run/systemd/private", "/run/systemd/io.systemd.Manager", "/run/docker.sock", "/run/docker", "/run/containerd", "/run/podman",
	"/run/crio", "/run/buildkit", "/run/libvirt", "/run/lxd", "/var/lib/lxd/unix.socket", "/var/snap/lxd/common/lxd/unix.socket",
	"/var/lib/incus/unix.socket", "/run/snapd.socket", "/run/snapd-snap.socket", "/run/pcscd", "/run/acpid.socket", "/tmp/.X11-unix",
	"/tmp/.ICE-unix", "/nix/var/nix/daemon-socket",
}

// places are the paths that commands are kept from. They are absolute and clean, and may not exist.
type places struct {
	stores   []string // not to be read
	services []string // not to be reached
}

// findPlaces finds what is denied by default and what the configuration changes about that. getenv is that of the plugin: what the
// host has, without secrets.
func findPlaces(config *Config, getenv func(string) string) (places, error) {
	var p places
	homes := homeDirs(getenv)
	for _, home := range homes {
		for _, store := range homeStores {
			p.stores = append(p.stores, filepath.Join(home, store))
		}
		p.stores = append(p.stores, filepath.Join(home, ".local/state/dsh"))
	}
	p.stores = append(p.stores, systemStores...)
	for variable, below := range map[string]string{
		"XDG_STATE_HOME": "dsh", "XDG_CONFIG_HOME": "dsh", "GNUPGHOME": "", "AWS_CONFIG_FILE": "",
		"KUBECONFIG": "", "DOCKER_CONFIG": "", "NETRC": "", "NPM_CONFIG_USERCONFIG": "", "GH_CONFIG_DIR": "", "CLOUDSDK_CONFIG": "",
		"PGPASSFILE": "",
	} {
		for _, path := range filepath.SplitList(getenv(variable)) {
			if filepath.IsAbs(path) {
				p.stores = append(p.stores, filepath.Join(path, below))
			}
		}
	}
	p.services = append(p.services, services...)
	p.services = append(p.services, "/run/user/"+uid(), "/tmp/dsh-"+uid(), filepath.Join(os.TempDir(), "dsh-"+uid()))
	for _, variable := range []string{"XDG_RUNTIME_DIR", "SSH_AUTH_SOCK", "PLUGIN_UNIX_SOCKET_DIR"} {
		if path := getenv(variable); filepath.IsAbs(path) {
			p.services = append(p.services, filepath.Clean(path))
		}
	}
	for _, address := range []string{getenv("DBUS_SESSION_BUS_ADDRESS"), getenv("DOCKER_HOST"), getenv("CONTAINER_HOST")} {
		for _, prefix := range []string{"unix:path=", "unix://"} {
			if path, ok := strings.CutPrefix(address, prefix); ok && filepath.IsAbs(path) {
				path, _, _ = strings.Cut(path, ",")
				p.services = append(p.services, filepath.Clean(path))
			}
		}
	}
	denied, err := expandAll("denyRead", config.DenyRead, homes)
	if err != nil {
		return places{}, err
	}
	allowed, err := expandAll("allowRead", config.AllowRead, homes)
	if err != nil {
		return places{}, err
	}
	for _, path := range allowed {
		isAllowed := func(place string) bool { return isBelow(place, path) }
		p.stores = slices.DeleteFunc(p.stores, isAllowed)
		p.services = slices.DeleteFunc(p.services, isAllowed)
		for _, place := range slices.Concat(p.stores, p.services) {
			if isBelow(path, place) {
				return places{}, fmt.Errorf("config: allowRead: %s lies below %s, which is denied as a whole: allow that, and deny what "+
					"of it must not be read", path, place)
			}
		}
	}
	p.stores = append(p.stores, denied...)
	p.stores, p.services = unique(p.stores), unique(p.services)
	return p, nil
}

// homeDirs are the directory that HOME names, and then that of the account.
func homeDirs(getenv func(string) string) []string {
	var homes []string
	if home := getenv("HOME"); filepath.IsAbs(home) {
		homes = append(homes, filepath.Clean(home))
	}
	if account, err := user.LookupId(uid()); err == nil && filepath.IsAbs(account.HomeDir) {
		homes = append(homes, filepath.Clean(account.HomeDir))
	}
	return slices.DeleteFunc(slices.Compact(homes), func(home string) bool { return home == "/" })
}

func uid() string { return strconv.Itoa(os.Getuid()) }

// expandAll makes the paths of a configuration key absolute.
func expandAll(key string, paths, homes []string) ([]string, error) {
	var expanded []string
	for _, path := range paths {
		rest, inHome := strings.CutPrefix(path, "~/")
		switch {
		case inHome && len(homes) == 0:
			return nil, fmt.Errorf("config: %s: %s: there is no home directory; set HOME", key, path)
		case inHome:
			path = filepath.Join(homes[0], rest)
		case !filepath.IsAbs(path):
			return nil, fmt.Errorf("config: %s: %s: it must be an absolute path, or begin with ~/", key, path)
		}
		if path = filepath.Clean(path); path == "/" {
			return nil, fmt.Errorf("config: %s: / is everything; name what is meant", key)
		}
		expanded = append(expanded, path)
	}
	return expanded, nil
}

// isBelow tells whether a path is dir or lies below it.
func isBelow(path, dir string) bool {
	rest, ok := strings.CutPrefix(path, dir)
	return ok && (rest == "" || rest[0] == '/' || dir == "/")
}

func unique(paths []string) []string {
	slices.Sort(paths)
	return slices.Compact(paths)
}

// place is a path without symbolic links, and what is there.
type place struct {
	path string
	info fs.FileInfo // nil: nothing
}

// find returns where the paths really are, symbolic links followed as far as there is something; of a path that is a link, the link
// too. They are sorted.
func find(paths []string) []place {
	var found []place
	parents := map[string]string{}
	for _, path := range paths {
		dir := filepath.Dir(path)
		parent, ok := parents[dir]
		if !ok {
			parent = realPath(dir)
			parents[dir] = parent
		}
		path = filepath.Join(parent, filepath.Base(path))
		info, err := os.Lstat(path)
		if err != nil {
			info = nil
		}
		found = append(found, place{path, info})
		if info != nil && info.Mode()&fs.ModeSymlink != 0 {
			if target := realPath(path); target != "/" {
				info, _ := os.Lstat(target)
				found = append(found, place{target, info})
			}
		}
	}
	slices.SortFunc(found, func(a, b place) int { return strings.Compare(a.path, b.path) })
	return slices.CompactFunc(found, func(a, b place) bool { return a.path == b.path })
}

// realPath follows symbolic links as far as the path exists.
func realPath(path string) string {
	real, err := filepath.EvalSymlinks(path)
	if err == nil {
		return real
	}
	if !errors.Is(err, os.ErrNotExist) || path == "/" {
		return path
	}
	return filepath.Join(realPath(filepath.Dir(path)), filepath.Base(path))
}
