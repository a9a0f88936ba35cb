package bashsandbox

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestWhatIsDeniedByDefault(t *testing.T) {
	env := map[string]string{
		"HOME": "/home/me", "XDG_STATE_HOME": "/state", "XDG_RUNTIME_DIR": "/run/user/7", "SSH_AUTH_SOCK": "/tmp/ssh/agent",
		"KUBECONFIG": "/k/one:/k/two", "DBUS_SESSION_BUS_ADDRESS": "unix:path=/bus,guid=1", "DOCKER_HOST": "tcp://elsewhere",
	}
	p, err := findPlaces(&Config{}, func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	for _, store := range []string{
		"/home/me/.ssh", "/home/me/.aws", "/home/me/.config/gh", "/home/me/.config/gcloud", "/home/me/.gnupg", "/home/me/.netrc", "/home/me/.docker",
		"/home/me/.kube", "/home/me/.npmrc", "/home/me/.git-credentials", "/home/me/.local/state/dsh", "/state/dsh", "/k/one", "/k/two",
	} {
		if !slices.Contains(p.stores, store) {
			t.Errorf("%s can be read", store)
		}
	}
	for _, service := range []string{"/run/user/7", "/tmp/ssh/agent", "/bus", "/run/docker.sock", filepath.Join(os.TempDir(), "dsh-"+uid())} {
		if !slices.Contains(p.services, service) {
			t.Errorf("%s can be reached", service)
		}
	}
}

func TestIsBelow(t *testing.T) {
	for _, test := range []struct {
		path, dir string
		want      bool
	}{
		{"/a/b", "/a", true}, {"/a", "/a", true}, {"/ab", "/a", false}, {"/a", "/a/b", false}, {"/a", "/", true}, {"/", "/", true},
	} {
		if got := isBelow(test.path, test.dir); got != test.want {
			t.Errorf("%s below %s: %v", test.path, test.dir, got)
		}
	}
}

func TestFindFollowsLinks(t *testing.T) {
	dir := realPath(t.TempDir())
	for _, err := range []error{
		os.MkdirAll(filepath.Join(dir, "real/store"), 0o755), os.Symlink("real", filepath.Join(dir, "way")),
		os.Symlink("store", filepath.Join(dir, "real/link")), os.Symlink("gone/deeper", filepath.Join(dir, "dangling")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, place := range find([]string{dir + "/way/link", dir + "/way/nothing/here", dir + "/dangling"}) {
		got = append(got, place.path[len(dir):])
	}
	if want := []string{"/dangling", "/real/link", "/real/nothing/here", "/real/store"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
