// Package configs holds the configurations that come with dsh, and embeds the one that is used when there is no other.
package configs

import _ "embed"

// Default is acp.yaml: an editor's agent with a shell, which needs nothing installed and no key.
//
//go:embed acp.yaml
var Default []byte
