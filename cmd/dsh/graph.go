package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/dsh-go/dsh/host/control"
)

func newGraph(o *options) *cobra.Command {
	format := "text"
	formats := []string{"text", "mermaid", "dot"}
	cmd := &cobra.Command{
		Use:   "graph",
		Short: "Show who uses whom in a running host",
		Long: `Graph shows which row needs which seam, and from whom. A seam without an active provider is marked, or drawn dashed: a row that
requires it is pending.` + whichHost,
		Example: `  dsh graph
  dsh graph --format dot | dot -Tsvg >graph.svg`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(formats, format) {
				return fmt.Errorf("--format %q: use text, mermaid or dot", format)
			}
			return o.withRunning(func(ctx context.Context, conn *grpc.ClientConn) error {
				s, err := control.NewClient(conn).Status(ctx)
				if err != nil {
					return err
				}
				g := newSeamGraph(s)
				map[string]func(io.Writer){"text": g.text, "mermaid": g.mermaid, "dot": g.dot}[format](cmd.OutOrStdout())
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&format, "format", format, "text, mermaid or dot")
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	addAttach(cmd, o)
	return cmd
}

// hostNode stands for the host among the rows. A row may have the same id; nodes are told apart by number.
const hostNode = 0

// seamGraph is who uses whom: node 0 is the host, node n the nth row.
type seamGraph struct {
	nodes []node
	edges []edge // in the order of their users
}

type node struct{ name, state string }

// edge says that a node uses a seam of another.
type edge struct {
	user, provider int // provider -1: there is none
	seam           string
	optional       bool
	met            bool // the provider is active
}

func newSeamGraph(s control.Status) *seamGraph {
	g := &seamGraph{nodes: []node{{"host", "active"}}}
	for i, r := range s.Rows {
		g.nodes = append(g.nodes, node{r.ID, r.Phase})
		for _, seam := range r.Injects {
			e := edge{user: i + 1, provider: -1, seam: seam, optional: slices.Contains(r.Optional, seam)}
			e.findProvider(s)
			g.edges = append(g.edges, e)
		}
	}
	for i, r := range s.Rows {
		for _, seam := range r.Contributes {
			g.edges = append(g.edges, edge{user: hostNode, provider: i + 1, seam: seam, optional: true, met: r.Phase == "active"})
		}
	}
	return g
}

// findProvider looks for the active provider of the seam, and else for one that could be.
func (e *edge) findProvider(s control.Status) {
	if slices.Contains(s.Host.Seams, e.seam) {
		e.provider, e.met = hostNode, true
		return
	}
	for i, r := range s.Rows {
		if slices.Contains(r.Provides, e.seam) && (e.provider < 0 || r.Phase == "active" && !e.met) {
			e.provider, e.met = i+1, r.Phase == "active"
		}
	}
}

// label is the seam, and what there is to say about the edge.
func (e edge) label() string {
	label := e.seam
	if e.optional && e.user != hostNode {
		label += ", optional"
	}
	if !e.met && !e.optional {
		label += ", pending"
	}
	return label
}

func (g *seamGraph) text(w io.Writer) {
	for user := range g.nodes {
		n := (user + 1) % len(g.nodes) // the rows, then the host
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintf(w, "%s (%s)\n", g.nodes[n].name, g.nodes[n].state)
		for _, e := range g.edges {
			if e.user != n {
				continue
			}
			from := "no row provides it"
			if e.provider >= 0 {
				from = "from " + g.nodes[e.provider].name
			}
			fmt.Fprintf(t, "  %s\t%s\n", e.label(), from)
		}
		t.Flush()
	}
}

func (g *seamGraph) mermaid(w io.Writer) {
	fmt.Fprintln(w, "flowchart LR")
	for i, n := range g.nodes {
		fmt.Fprintf(w, "  n%d[\"%s (%s)\"]\n", i, n.name, n.state)
	}
	for i, e := range g.edges {
		arrow := "-->"
		if !e.met {
			arrow = "-.->"
		}
		provider := fmt.Sprintf("n%d", e.provider)
		if e.provider < 0 {
			provider = fmt.Sprintf("none%d", i)
			fmt.Fprintf(w, "  %s([\"no row provides %s\"])\n", provider, e.seam)
		}
		fmt.Fprintf(w, "  n%d %s|\"%s\"| %s\n", e.user, arrow, e.label(), provider)
	}
}

func (g *seamGraph) dot(w io.Writer) {
	fmt.Fprintln(w, "digraph dsh {\n  rankdir=LR\n  node [shape=box]")
	for i, n := range g.nodes {
		fmt.Fprintf(w, "  n%d [label=%q]\n", i, n.name+"\n"+n.state)
	}
	for i, e := range g.edges {
		style := "solid"
		if !e.met {
			style = "dashed"
		}
		provider := fmt.Sprintf("n%d", e.provider)
		if e.provider < 0 {
			provider = fmt.Sprintf("none%d", i)
			fmt.Fprintf(w, "  %s [label=%q, style=dashed]\n", provider, "no row provides "+e.seam)
		}
		fmt.Fprintf(w, "  n%d -> %s [label=%q, style=%s]\n", e.user, provider, e.label(), style)
	}
	fmt.Fprintln(w, "}")
}
