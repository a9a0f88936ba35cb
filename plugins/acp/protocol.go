package acp

import (
	"encoding/json"

	"github.com/dsh-go/dsh/plugins/acp/jsonrpc"
)

// What dsh uses of the Agent Client Protocol, version 1. Required arrays are never nil, what is optional and unset is left out.

const protocolVersion = 1

// Methods.
const (
	methodInitialize    = "initialize"
	methodAuthenticate  = "authenticate"
	methodNew           = "session/new"
	methodLoad          = "session/load"
	methodResume        = "session/resume"
	methodList          = "session/list"
	methodClose         = "session/close"
	methodDelete        = "session/delete"
	methodPrompt        = "session/prompt"
	methodCancel        = "session/cancel"
	methodSetMode       = "session/set_mode"
	methodSetOption     = "session/set_config_option"
	methodUpdate        = "session/update"
	methodPermission    = "session/request_permission"
	methodCancelRequest = "$/cancel_request"
)

// Stop reasons.
const (
	stopEndTurn   = "end_turn"
	stopMaxTokens = "max_tokens"
	stopCancelled = "cancelled"
)

type empty struct{}

type initializeParams struct {
	ProtocolVersion    *json.Number `json:"protocolVersion"`
	ClientCapabilities struct {
		Meta struct {
			TerminalOutput any `json:"terminal_output"` // true is meant; whatever else is harmless
		} `json:"_meta"`
	} `json:"clientCapabilities"`
}

type initializeResult struct {
	ProtocolVersion int          `json:"protocolVersion"`
	Capabilities    capabilities `json:"agentCapabilities"`
	AuthMethods     []empty      `json:"authMethods"`
	AgentInfo       AgentInfo    `json:"agentInfo"`
}

type capabilities struct {
	LoadSession bool `json:"loadSession"`
	Prompt      struct {
		Image           bool `json:"image"`
		Audio           bool `json:"audio"`
		EmbeddedContext bool `json:"embeddedContext"`
	} `json:"promptCapabilities"`
	MCP struct {
		HTTP bool `json:"http"`
		SSE  bool `json:"sse"`
	} `json:"mcpCapabilities"`
	Session struct {
		List   empty `json:"list"`
		Resume empty `json:"resume"`
		Close  empty `json:"close"`
		Delete empty `json:"delete"`
	} `json:"sessionCapabilities"`
}

// sessionParams are those of every request about a session: new, load, resume, close, delete, cancel.
type sessionParams struct {
	SessionID             string            `json:"sessionId"`
	Cwd                   *string           `json:"cwd"`
	AdditionalDirectories []string          `json:"additionalDirectories"`
	MCPServers            []json.RawMessage `json:"mcpServers"`
}

// openResult is the answer to new, load and resume.
type openResult struct {
	SessionID string         `json:"sessionId,omitempty"` // to new
	Modes     *modeState     `json:"modes,omitempty"`
	Options   []configOption `json:"configOptions,omitempty"`
}

type modeState struct {
	Current   string `json:"currentModeId"`
	Available []mode `json:"availableModes"`
}

type mode struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
}

// configOption is what a person can choose from a list.
type configOption struct {
	ID       string        `json:"id"`
	Name     string        `json:"name"`
	Category string        `json:"category,omitempty"`
	Type     string        `json:"type"`
	Current  string        `json:"currentValue"`
	Options  []configValue `json:"options"`
}

type configValue struct {
	Value       string `json:"value"`
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
}

// settingParams are those of set_mode and of set_config_option.
type settingParams struct {
	SessionID string  `json:"sessionId"`
	ModeID    *string `json:"modeId"`
	ConfigID  *string `json:"configId"`
	Value     *string `json:"value"`
}

type optionsResult struct {
	Options []configOption `json:"configOptions"`
}

type listParams struct {
	Cwd    *string `json:"cwd"`
	Cursor *string `json:"cursor"`
}

type listResult struct {
	Sessions   []listedSession `json:"sessions"`
	NextCursor string          `json:"nextCursor,omitempty"`
}

type listedSession struct {
	SessionID string `json:"sessionId"`
	Cwd       string `json:"cwd"`
	Title     string `json:"title,omitempty"`
	UpdatedAt string `json:"updatedAt,omitempty"`
}

type promptParams struct {
	SessionID string            `json:"sessionId"`
	Prompt    []json.RawMessage `json:"prompt"`
}

type promptResult struct {
	StopReason string `json:"stopReason"`
}

type cancelRequestParams struct {
	RequestID json.RawMessage `json:"requestId"`
}

type withdrawalParams struct {
	RequestID jsonrpc.ID `json:"requestId"`
}

type permissionParams struct {
	SessionID string             `json:"sessionId"`
	Call      askedCall          `json:"toolCall"`
	Options   []permissionOption `json:"options"`
}

// askedCall repeats the card of a call; what it leaves out is unchanged.
type askedCall struct {
	ToolCallID string          `json:"toolCallId"`
	Title      string          `json:"title,omitempty"`
	ToolKind   string          `json:"kind,omitempty"`
	Status     string          `json:"status"`
	RawInput   json.RawMessage `json:"rawInput,omitempty"`
	Content    []cardContent   `json:"content,omitempty"`
}

type permissionOption struct {
	ID   string `json:"optionId"`
	Name string `json:"name"`
	Kind string `json:"kind"`
}

type permissionResult struct {
	Outcome struct {
		Outcome  string `json:"outcome"`
		OptionID string `json:"optionId"`
	} `json:"outcome"`
}

type updateParams struct {
	SessionID string `json:"sessionId"`
	Update    update `json:"update"`
}

// update is one session/update. Which fields it has depends on its kind.
type update struct {
	Kind       string          `json:"sessionUpdate"`
	Content    any             `json:"content,omitempty"` // a contentBlock of a message, []cardContent of a card
	ToolCallID string          `json:"toolCallId,omitempty"`
	Title      string          `json:"title,omitempty"`
	ToolKind   string          `json:"kind,omitempty"`
	Status     string          `json:"status,omitempty"`
	RawInput   json.RawMessage `json:"rawInput,omitempty"`
	Meta       *terminalMeta   `json:"_meta,omitempty"`

	Commands []availableCommand `json:"availableCommands,omitempty"`
	Mode     string             `json:"currentModeId,omitempty"`
	Options  []configOption     `json:"configOptions,omitempty"`
	Used     *int64             `json:"used,omitempty"`
	Size     *int64             `json:"size,omitempty"`
}

// Kinds of updates.
const (
	kindUserMessage  = "user_message_chunk"
	kindAgentMessage = "agent_message_chunk"
	kindAgentThought = "agent_thought_chunk"
	kindCard         = "tool_call"
	kindCardUpdate   = "tool_call_update"
	kindCommands     = "available_commands_update"
	kindMode         = "current_mode_update"
	kindOptions      = "config_option_update"
	kindUsage        = "usage_update"
	kindSessionInfo  = "session_info_update"
)

type availableCommand struct {
	Name        string        `json:"name"`
	Description string        `json:"description"`
	Input       *commandInput `json:"input,omitempty"`
}

type commandInput struct {
	Hint string `json:"hint"`
}

// The states of a card.
const (
	statusPending   = "pending"
	statusRunning   = "in_progress"
	statusCompleted = "completed"
	statusFailed    = "failed"
)

type contentBlock struct {
	Type     string           `json:"type"`
	Text     *string          `json:"text,omitempty"`
	URI      string           `json:"uri,omitempty"`
	Name     *string          `json:"name,omitempty"`
	Resource *resourceContent `json:"resource,omitempty"`
}

type resourceContent struct {
	URI      string  `json:"uri"`
	MimeType string  `json:"mimeType,omitempty"`
	Text     *string `json:"text,omitempty"`
}

func textBlock(text string) contentBlock { return contentBlock{Type: "text", Text: &text} }

// cardContent is a part of a card: a text, or a terminal.
type cardContent struct {
	Type       string        `json:"type"`
	Content    *contentBlock `json:"content,omitempty"`
	TerminalID string        `json:"terminalId,omitempty"`
}

// terminalMeta is how editors show terminals that the agent owns. Each update has one of the three.
type terminalMeta struct {
	Info   *terminalInfo   `json:"terminal_info,omitempty"`
	Output *terminalOutput `json:"terminal_output,omitempty"`
	Exit   *terminalExit   `json:"terminal_exit,omitempty"`
}

type terminalInfo struct {
	TerminalID string `json:"terminal_id"`
	Cwd        string `json:"cwd"`
}

type terminalOutput struct {
	TerminalID string `json:"terminal_id"`
	Data       string `json:"data"`
}

type terminalExit struct {
	TerminalID string  `json:"terminal_id"`
	ExitCode   *int    `json:"exit_code"`
	Signal     *string `json:"signal"`
}
