package agents

import (
	"tendril/budget"
)

// openAIBase is where the route leads, for an agent that takes no variable for it. A test
// of stem holds that it does.
const openAIBase = "http://127.0.0.1:3130/v1"

// BuiltIn are the agents that are known without a word of the Botanist's, by the
// arguments of the versions that docs/agents.md names. Each is told to ask nobody: what
// bounds it is the Terrarium.
func BuiltIn() map[Name]Agent {
	return map[Name]Agent{
		// Settings come as arguments. Its own sandbox cannot be had inside another one.
		"codex": {
			Command: Command{
				"codex", "exec", "--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check",
				"-c", `model_provider="tendril"`,
				"-c", `model_providers.tendril={name="tendril", base_url="` + openAIBase + `", wire_api="responses", env_key="OPENAI_API_KEY"}`,
				"--model", modelPlace, "--", promptPlace,
			},
			Route: budget.OpenAI,
		},
		"claude": {
			Command: Command{"claude", "--print", "--dangerously-skip-permissions", "--model", modelPlace, "--", promptPlace},
			Route:   budget.Anthropic,
			Env: map[Variable]string{
				"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
				"DISABLE_AUTOUPDATER":                      "1",
				// What it asks beside the work goes to the same model: no other is granted.
				"ANTHROPIC_SMALL_FAST_MODEL":    modelPlace,
				"ANTHROPIC_DEFAULT_HAIKU_MODEL": modelPlace,
			},
		},
		// Its whole configuration comes in a variable. "small_model" is what titles are
		// asked of.
		"opencode": {
			Command: Command{"opencode", "run", "--model", "tendril/" + modelPlace, "--", promptPlace},
			Route:   budget.OpenAI,
			Env: map[Variable]string{
				"OPENCODE_CONFIG_CONTENT": `{"provider":{"tendril":{"npm":"@ai-sdk/openai-compatible",` +
					`"options":{"baseURL":"{env:OPENAI_BASE_URL}","apiKey":"{env:OPENAI_API_KEY}"},"models":{"` + modelPlace + `":{}}}},` +
					`"small_model":"tendril/` + modelPlace + `","autoupdate":false,"share":"disabled","permission":"allow"}`,
				"OPENCODE_DISABLE_MODELS_FETCH": "1",
			},
		},
		// It takes an address from a file alone, and a task that begins with a dash or an
		// @ from its standard input.
		"pi": {
			Command: Command{
				"sh", "-c", `mkdir -p "$HOME/.pi/agent" &&
printf '{"providers":{"anthropic":{"baseUrl":"%s"}}}' "$ANTHROPIC_BASE_URL" >"$HOME/.pi/agent/models.json" &&
printf %s "$1" | pi --print --offline --no-session --provider anthropic --model "$2"`, "pi", promptPlace, modelPlace,
			},
			Route: budget.Anthropic,
		},
		// A task that begins with a dash has to come from a file. What counts is the working
		// tree: it makes no commits there, and what it keeps for itself goes.
		"aider": {
			Command: Command{
				"sh", "-c", `printf %s "$1" >"$TMPDIR/task"
aider --yes-always --no-auto-commits --no-gitignore --no-check-update --no-show-release-notes --no-show-model-warnings --analytics-disable \
	--chat-history-file "$TMPDIR/chat" --input-history-file "$TMPDIR/input" --model "openai/$2" --message-file "$TMPDIR/task"
status=$?; rm -rf .aider.tags.cache.*; exit $status`, "aider", promptPlace, modelPlace,
			},
			Route: budget.OpenAI,
		},
	}
}
