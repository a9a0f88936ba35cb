// Package environ tells which environment variables stay where they are: the host does not hand them to its plugins, and executors do not
// hand them to commands.
package environ

import (
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
