package bench

import (
	"context"
	"encoding/json"
	"net"
	"time"

	"google.golang.org/grpc"

	"github.com/dsh-go/dsh/sdk"
	"github.com/dsh-go/dsh/sdk/api"
	"github.com/dsh-go/dsh/sdk/api/bashv1"
	"github.com/dsh-go/dsh/sdk/bash"
	"github.com/dsh-go/dsh/sdk/tool"
)

// socketConfig names the socket on which the provider can be reached without the host.
type socketConfig struct {
	Direct string `json:"direct"`
}

var benchPlugins = map[string]func() *sdk.Plugin{
	"provider": func() *sdk.Plugin {
		return sdk.Define(sdk.Manifest{Name: "provider", Provides: []sdk.Seam{bash.Seam}}, socketConfig{}, func(c *sdk.Context, config socketConfig) error {
			bashv1.RegisterBashServer(c, answering{})
			listener, err := net.Listen("unix", config.Direct)
			if err != nil {
				return err
			}
			server := grpc.NewServer(api.ServerOptions()...)
			bashv1.RegisterBashServer(server, answering{})
			c.Go("direct", func(context.Context) error { return server.Serve(listener) })
			go func() { // before the goroutines of the instance are waited for
				<-c.Done().Done()
				server.Stop()
			}()
			return nil
		})
	},
	"caller": func() *sdk.Plugin {
		m := sdk.Manifest{Name: "caller", Provides: []sdk.Seam{tool.Provider}, Injects: []sdk.Injection{bash.Seam.Required()}}
		return sdk.Define(m, socketConfig{}, func(c *sdk.Context, config socketConfig) error {
			direct, err := api.Dial(config.Direct)
			if err != nil {
				return err
			}
			ways := map[string]bashv1.BashClient{
				"floor-direct": bashv1.NewBashClient(direct), "routed": bashv1.NewBashClient(c.Conn()),
			}
			return tool.Serve(c, tool.New("measure", "Measures calls.", func(ctx context.Context, _ *tool.Call, args struct {
				Way   string `json:"way"`
				Calls int    `json:"calls"`
			},
			) (tool.Result, error) {
				var d times
				for range args.Calls {
					start := time.Now()
					if _, err := ways[args.Way].Defaults(ctx, &bashv1.DefaultsRequest{}); err != nil {
						return tool.Result{}, err
					}
					d = append(d, time.Since(start))
				}
				text, err := json.Marshal(d)
				return tool.Text(string(text)), err
			}))
		})
	},
}

type answering struct{ bashv1.UnimplementedBashServer }

func (answering) Defaults(context.Context, *bashv1.DefaultsRequest) (*bashv1.DefaultsResponse, error) {
	return &bashv1.DefaultsResponse{TimeoutMs: 120000, Cwd: "/some/where/that/makes/sixty/four/bytes/together"}, nil
}
