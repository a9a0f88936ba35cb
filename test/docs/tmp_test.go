package docs
import ("testing";"os")
func TestTmp(t *testing.T){ b:=BuildProgram(t,"writing-a-plugin.md"); d,_:=os.ReadFile(b); os.WriteFile("/tmp/tb/line-counter",d,0o755)}
