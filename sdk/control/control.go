// Package control is the seam through which a plugin looks at its host and steers it, as people do on the control socket.
package control

import (
	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/api/controlv1"
)

// Seam is what a plugin injects, optionally: a host that runs for one call does not serve it.
var Seam = sdk.Seam{Name: "control", Service: controlv1.Control_ServiceDesc.ServiceName}
