package acp

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"slices"

	"github.com/dsh-go/dsh/plugins/acp/jsonrpc"
	"github.com/dsh-go/dsh/sdk/agents"
	"github.com/dsh-go/dsh/sdk/stdio"
)

// read takes lines until input ends or the bridge stops reading.
func (b *bridge) read(ctx context.Context) {
	for {
		line, err := b.lease.Next(ctx)
		if err != nil {
			if !errors.Is(err, io.EOF) && ctx.Err() == nil {
				b.log.Error("cannot read from the editor", "error", err)
			}
			return
		}
		if !slices.Contains(b.taken, line.Number) {
			b.classify(line)
		}
	}
}

// classify decides what a line is about. It does not wait for what it sets off.
func (b *bridge) classify(line stdio.Line) {
	if line.Oversized > 0 {
		b.begin(jsonrpc.ID{}, "", line.Number).refuse(jsonrpc.Errorf(jsonrpc.CodeInvalidRequest,
			"invalid request: the frame has %d bytes; at most 64 MiB are read", line.Oversized))
		return
	}
	if jsonrpc.Blank(line.Data) {
		b.lease.Ack(line.Number)
		return
	}
	m, bad := jsonrpc.Parse(line.Data)
	if bad != nil {
		b.begin(m.ID, m.Method, line.Number).refuse(bad)
		return
	}
	switch m.Kind {
	case jsonrpc.Request:
		b.request(m, line.Number)
	case jsonrpc.Notification:
		b.notification(m)
		b.lease.Ack(line.Number)
	case jsonrpc.Response:
		b.answered(m, line.Number)
	}
}

func (b *bridge) notification(m jsonrpc.Message) {
	switch m.Method {
	case methodCancel:
		var params sessionParams
		if json.Unmarshal(m.Params, &params) != nil {
			return
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if s := b.sessions[params.SessionID]; s != nil && s.prompt != nil {
			b.cancel(s.prompt)
		}
	case methodCancelRequest:
		var params cancelRequestParams
		if json.Unmarshal(m.Params, &params) != nil {
			return
		}
		id, ok := jsonrpc.ParseID(params.RequestID)
		if !ok {
			return
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		for p := range b.prompts {
			if p.request.id.Key() == id.Key() {
				b.cancel(p)
			}
		}
	}
}

func (b *bridge) request(m jsonrpc.Message, line uint64) {
	r := b.begin(m.ID, m.Method, line)
	defer r.contain()
	b.mu.Lock()
	busy := b.inFlight > maxInFlight
	b.mu.Unlock()
	if busy {
		r.refuse(jsonrpc.Errorf(jsonrpc.CodeInternal, "busy: %d requests are in flight", maxInFlight))
		return
	}
	switch m.Method {
	case methodInitialize:
		b.initialize(r, m.Params)
	case methodAuthenticate:
		r.later(func() { r.answer(empty{}) })
	case methodNew:
		b.inBackground(r, func(ctx context.Context, r *request) { b.create(ctx, r, m.Params) })
	case methodList:
		b.inBackground(r, func(ctx context.Context, r *request) { b.list(ctx, r, m.Params) })
	case methodLoad, methodResume, methodClose, methodDelete:
		b.lifeCycle(r, m.Params)
	case methodPrompt:
		b.prompt(r, m.Params)
	case methodSetMode, methodSetOption:
		b.setting(r, m.Params)
	default:
		r.refuse(jsonrpc.Errorf(jsonrpc.CodeUnknownMethod, "unknown method: %s", m.Method))
	}
}

func (b *bridge) inBackground(r *request, handler func(context.Context, *request)) {
	b.running.Go(func() { r.handle(handler) })
}

// initialize is answered by the reader: what the client can show holds for everything that follows.
func (b *bridge) initialize(r *request, raw json.RawMessage) {
	var params initializeParams
	if err := decode(raw, &params); err != nil {
		r.refuse(err)
		return
	}
	b.mu.Lock()
	b.terminals = params.ClientCapabilities.Meta.TerminalOutput == true
	b.mu.Unlock()
	result := initializeResult{ProtocolVersion: protocolVersion, AuthMethods: []empty{}, AgentInfo: b.info}
	result.Capabilities.LoadSession = true
	result.Capabilities.Prompt.EmbeddedContext = true
	r.later(func() {
		b.keep()
		r.answer(result)
	})
}

// lifeCycle settles in wire order whether a session may be opened, and ends its prompt when it is closed.
func (b *bridge) lifeCycle(r *request, raw json.RawMessage) {
	var params sessionParams
	if err := decode(raw, &params); err != nil {
		r.refuse(err)
		return
	}
	if err := b.checkSession(r.method, params); err != nil {
		r.refuse(err)
		return
	}
	if err := b.claim(r, params.SessionID); err != nil {
		r.refuse(err)
	}
}

// claim gives the request its place in the session's mailbox, or says why not.
func (b *bridge) claim(r *request, id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.sessions[id]
	opens := r.method == methodLoad || r.method == methodResume
	switch {
	case opens && s != nil && s.expected:
		return alreadyLoaded(id)
	case r.method == methodClose && (s == nil || !s.expected):
		return unknownSession(id)
	case s == nil:
		s = &session{b: b, id: id}
		b.sessions[id] = s
	}
	if s.full() {
		return s.busy()
	}
	epoch := s.expect(opens)
	if !opens && s.prompt != nil {
		b.cancel(s.prompt)
		s.prompt = nil
	}
	s.post(work, r, func(ctx context.Context, r *request) {
		switch r.method {
		case methodLoad, methodResume:
			s.open(ctx, r, epoch)
		case methodClose:
			s.close(ctx, r, epoch)
		case methodDelete:
			s.delete(ctx, r, epoch)
		}
	})
	return nil
}

// checkSession checks the params that all requests about a session have in common.
func (b *bridge) checkSession(method string, params sessionParams) error {
	if params.SessionID == "" && method != methodNew {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "sessionId must be a non-empty string")
	}
	if method == methodNew && params.Cwd == nil {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "cwd must be an absolute path: it is missing")
	}
	if err := checkCwd(params.Cwd); err != nil {
		return err
	}
	if len(params.AdditionalDirectories) > 0 {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "additionalDirectories are not supported; a session has its cwd only")
	}
	if len(params.MCPServers) > 0 {
		b.log.Warn("the editor's mcpServers are not used yet", "method", method, "servers", len(params.MCPServers))
	}
	return nil
}

func checkCwd(cwd *string) error {
	if cwd != nil && !filepath.IsAbs(*cwd) {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "cwd must be an absolute path: %s", *cwd)
	}
	return nil
}

// prompt settles in wire order whether the prompt is taken.
func (b *bridge) prompt(r *request, raw json.RawMessage) {
	var params promptParams
	if err := decode(raw, &params); err != nil {
		r.refuse(err)
		return
	}
	content, bad := promptContent(params.Prompt)
	if err := b.accept(r, params.SessionID, content, bad); err != nil {
		r.refuse(err)
	}
}

// accept takes a prompt, or says why not; bad is what is wrong with its content.
func (b *bridge) accept(r *request, id string, content []agents.ContentBlock, bad error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.sessions[id]
	if s == nil || !s.expected {
		return unknownSession(id)
	}
	if bad != nil {
		return bad
	}
	if s.prompt != nil {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "a prompt is already in flight for this session")
	}
	if s.full() {
		return s.busy()
	}
	p := b.newPrompt(s, r, rand.Text())
	s.prompt = p
	if p.command = b.parseCommand(content); p.command != nil {
		s.post(turn, r, p.runCommand)
		return nil
	}
	p.content = content
	s.post(turn, r, p.run)
	return nil
}

// setting settles in wire order whether an option may be set. It is set beside a turn that runs.
func (b *bridge) setting(r *request, raw json.RawMessage) {
	var params settingParams
	if err := decode(raw, &params); err != nil {
		r.refuse(err)
		return
	}
	option, value := params.ConfigID, params.Value
	if r.method == methodSetMode {
		mode := optionMode
		option, value = &mode, params.ModeID
	}
	switch {
	case option == nil:
		r.refuse(jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "configId must be a string"))
		return
	case value == nil:
		r.refuse(jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "the value must be a string"))
		return
	}
	if err := b.acceptSetting(r, params.SessionID, *option, *value); err != nil {
		r.refuse(err)
	}
}

func (b *bridge) acceptSetting(r *request, id, option, value string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.sessions[id]
	switch {
	case s == nil || !s.expected:
		return unknownSession(id)
	case s.full():
		return s.busy()
	}
	s.postBeside(r, func(ctx context.Context, r *request) { s.set(ctx, r, option, value) })
	return nil
}

// decode reads params; null and absent ones are an empty object.
func decode(raw json.RawMessage, params any) error {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	if bytes.HasPrefix(raw, []byte("[")) {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid params: they must be an object")
	}
	if err := json.Unmarshal(raw, params); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) && wrong.Field != "" {
			return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid params: %s must not be a JSON %s", wrong.Field, wrong.Value)
		}
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid params: %v", err)
	}
	return nil
}
