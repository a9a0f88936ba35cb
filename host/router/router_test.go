package router

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"

	"github.com/dsh-go/dsh/host/numbers"
	"github.com/dsh-go/dsh/sdk/api"
	"github.com/dsh-go/dsh/sdk/api/pluginv1"
)

const method = "/test.Bash/Run"

func injecting(services ...string) *Caller {
	c := &Caller{Row: "caller", Injects: []*pluginv1.Inject{}}
	for _, s := range services {
		c.Injects = append(c.Injects, &pluginv1.Inject{Seam: "seam-of-" + s, Service: s})
	}
	return c
}

func TestRouteDecidesByInjectionThenProvider(t *testing.T) {
	r := New(numbers.InMemory())
	_, err := r.route(t.Context(), injecting(), method, nil)
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("not injected: got %v", err)
	}
	_, err = r.route(t.Context(), injecting("test.Bash"), method, nil)
	if want := `no active row provides seam "seam-of-test.Bash"`; status.Code(err) != codes.Unavailable || status.Convert(err).Message() != want {
		t.Errorf("no provider: got %v, want %q", err, want)
	}
	provider := &Target{Row: "bash"}
	r.Provide("test.Bash", provider)
	if got, err := r.route(t.Context(), injecting("test.Bash"), method, nil); got != provider || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := r.route(t.Context(), &Caller{Row: "cli"}, method, nil); got != provider || err != nil {
		t.Errorf("a caller without a list may call everything: %v, %v", got, err)
	}
	r.Remove("test.Bash")
	if _, err := r.route(t.Context(), injecting("test.Bash"), method, nil); status.Code(err) != codes.Unavailable {
		t.Errorf("withdrawn: got %v", err)
	}
}

func TestHeldCallsWaitForTheSuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(numbers.InMemory())
		old, successor := &Target{Row: "bash"}, &Target{Row: "bash"}
		r.Provide("test.Bash", old)
		r.Hold("test.Bash")
		found := make(chan *Target)
		for range 3 {
			go func() {
				got, err := r.route(t.Context(), injecting("test.Bash"), method, nil)
				if err != nil {
					t.Error(err)
				}
				found <- got
			}()
		}
		<-time.After(9 * time.Second) // of the bubble's clock
		r.Provide("test.Bash", successor)
		for range 3 {
			if got := <-found; got != successor {
				t.Errorf("a held call went to %v", got)
			}
		}
	})
}

func TestAHeldCallFailsInTheEnd(t *testing.T) {
	for _, test := range []struct {
		name  string
		then  func(r *Router)
		after time.Duration
		want  string
	}{
		{"nobody came", func(*Router) {}, holdLimit, `no provider of seam "seam-of-test.Bash" came back within 10s`},
		{"the row failed", func(r *Router) { r.Down("test.Bash", `row "bash" failed: crash loop`) }, 0, `row "bash" failed: crash loop`},
		{"the row was removed", func(r *Router) { r.Remove("test.Bash") }, 0, `no active row provides seam "seam-of-test.Bash"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := New(numbers.InMemory())
				r.Hold("test.Bash")
				start := time.Now()
				failed := make(chan error)
				go func() {
					_, err := r.route(t.Context(), injecting("test.Bash"), method, nil)
					failed <- err
				}()
				synctest.Wait()
				test.then(r)
				err := <-failed
				if status.Code(err) != codes.Unavailable || status.Convert(err).Message() != test.want || time.Since(start) != test.after {
					t.Errorf("got %v after %s, want %q after %s", err, time.Since(start), test.want, test.after)
				}
			})
		})
	}
}

func TestTheNumberOfHeldCallsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(numbers.InMemory())
		r.Hold("test.Bash")
		ctx, cancel := context.WithCancel(t.Context())
		for range maxHeld {
			go func() { _, _ = r.route(ctx, injecting("test.Bash"), method, nil) }()
		}
		synctest.Wait()
		_, err := r.route(t.Context(), injecting("test.Bash"), method, nil)
		if want := "1000 calls wait for a provider already"; status.Code(err) != codes.Unavailable || !strings.HasPrefix(status.Convert(err).Message(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		cancel()
		synctest.Wait()
		if r.held != 0 {
			t.Errorf("%d calls are still counted", r.held)
		}
	})
}

func TestTheCallersMetadataPassesButItsIdentityIsStamped(t *testing.T) {
	got := outgoing(metadata.MD{
		":authority": {"x"}, "content-type": {"application/grpc"}, "user-agent": {"grpc-go"}, "grpc-timeout": {"1S"},
		"traceparent": {"00-1"}, "own": {"1", "2"},
		api.MetadataCaller: {"forged"}, "dsh-other": {"forged"}, api.MetadataClaim: {"bash-1"},
	}, "row")
	want := metadata.MD{"traceparent": {"00-1"}, "own": {"1", "2"}, api.MetadataCaller: {"row"}, api.MetadataClaim: {"bash-1"}}
	if len(got) != len(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for name, values := range want {
		if len(got[name]) != len(values) || got[name][0] != values[0] {
			t.Errorf("%s: got %v, want %v", name, got[name], values)
		}
	}
}

// TestClaims checks the claims against a model: a list of who holds what.
func TestClaimsBindToWhoeverHoldsThem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := New(numbers.InMemory())
		caller := injecting("test.Bash")
		targets := []*Target{{Row: "old"}, {Row: "new"}}
		holders := map[string]*Target{}
		allotted := 0
		var current *Target
		t.Repeat(map[string]func(*rapid.T){
			"provide": func(t *rapid.T) {
				current = rapid.SampledFrom(targets).Draw(t, "target")
				r.Provide("test.Bash", current)
			},
			"claim": func(t *rapid.T) {
				holder := rapid.SampledFrom(targets).Draw(t, "target")
				allotted++
				key, err := r.Claim("test.Bash", "bash", holder)
				if want := "bash-" + strconv.Itoa(allotted); err != nil || key != want {
					t.Fatalf("allotted %s, %v, want %s", key, err, want)
				}
				holders[key] = holder
			},
			"release": func(t *rapid.T) {
				key := "bash-" + strconv.Itoa(rapid.IntRange(1, 20).Draw(t, "key"))
				by := rapid.SampledFrom(targets).Draw(t, "target")
				r.Release("test.Bash", key, by)
				if holders[key] == by {
					delete(holders, key)
				}
			},
			"die": func(t *rapid.T) {
				gone := rapid.SampledFrom(targets).Draw(t, "target")
				r.Disclaim(gone)
				if current == gone {
					r.Remove("test.Bash")
				}
				for key, holder := range holders {
					if holder == gone {
						delete(holders, key)
					}
				}
				if current == gone {
					current = nil
				}
			},
			"": func(t *rapid.T) {
				for n := range allotted {
					key := "bash-" + strconv.Itoa(n+1)
					want := holders[key]
					if want == nil {
						want = current
					}
					got, err := r.route(t.Context(), caller, method, metadata.Pairs(api.MetadataClaim, key))
					if got != want || (err == nil) != (want != nil) {
						t.Fatalf("a call with %s goes to %v (%v), want %v", key, got, err, want)
					}
				}
			},
		})
	})
}

func TestOnlyWhatWasAllottedIs(t *testing.T) {
	n := numbers.InMemory()
	if _, err := New(n).Claim("test.Bash", "bash", &Target{}); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]bool{
		"bash-1": true, "bash-2": false, "bash-0": false, "bash-": false, "bash": false, "": false, "bash-01": false, "bash--1": false,
		"agent-1": false, "../bash-1": false, "bash-1-1": false, "bash-+1": false, "bash-99999999999999999999": false,
	} {
		if got, err := New(n).Allotted(key); err != nil || got != want {
			t.Errorf("%s: %v, %v", key, got, err)
		}
	}
}
