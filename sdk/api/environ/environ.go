// Package environ reads the environment alike everywhere: which variables stay where they are, as the host does not hand them to its
// plugins nor executors to commands, and where state is kept.
package environ

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// credentialWords mark the name of a variable as that of a credential.
var credentialWords = []string{"KEY", "SECRET", "TOKEN", "PASSWORD", "PASSWD", "CREDENTIAL"}

// IsPrivate is true for the names of variables that are dsh's own (DSH_*, PLUGIN_*) or may hold credentials, in any case of letters.
func IsPrivate(name string) bool {
	upper := strings.ToUpper(name)
	switch {
	case strings.HasPrefix(upper, "DSH_"), strings.HasPrefix(upper, "PLUGIN_"):
		return true
	case name == "GIT_CONFIG_COUNT", strings.HasPrefix(name, "GIT_CONFIG_VALUE_"):
		return true // git refuses to run when they are set and GIT_CONFIG_KEY_*, which has one of the words in its name, is not
	}
	return slices.ContainsFunc(credentialWords, func(word string) bool { return strings.Contains(upper, word) })
}

// StateHome is the directory below which programs of this user keep their state: $XDG_STATE_HOME, else ~/.local/state.
func StateHome() (string, error) {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return dir, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, ".local", "state"), nil
}
