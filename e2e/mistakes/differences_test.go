//go:build e2e

package mistakes

// difference is what is said instead of the agent's words.
type difference struct {
	why     string // why the words are not the agent's
	kubectl string // part of what kubectl says; empty where it says the agent's words
	tako    string // part of what tako says; empty where it is what the agent says
}

// Why words are not the agent's.
const (
	readsYAML   = "kubectl's own reader of YAML refuses it, before a server is asked"
	bareNumber  = "kubectl reads a number without quotes as YAML 1.1 does, so that the digits are not known any more (declare/json.go)"
	looseYAML   = "kubectl reads YAML 1.1 and sends JSON: the mistake is gone, or another, before the server sees it"
	wantsKind   = "kubectl does not find the kind, so it sends nothing"
	strict      = "the library's strict decoding refuses the field, which no object can hold"
	types       = "the library's decoder of JSON refuses the type, which no object can hold"
	goneInJSON  = "where nothing stands in YAML, nothing arrives: the server can only say that the field is missing"
	alsoLibrary = "the library checks metadata too, and adds its words to ours"
)

// differences lists the documents whose words are not the same from all three, by name.
func differences() map[string]difference {
	all := map[string]difference{
		"directive": {readsYAML, "error parsing", "did not find expected <document start>"},

		"anchor":         {why: looseYAML, kubectl: "TK0421"},
		"bad-mode":       {why: bareNumber, kubectl: "read mode 420: wrong type: write octal digits in quotes"},
		"bad-rollout":    {why: bareNumber, kubectl: "read number or percentage 0: wrong type: write a number or percentage in quotes"},
		"mode-too-large": {why: bareNumber, kubectl: "read mode 17777: wrong type: write octal digits in quotes"},
		"duplicate-key":  {why: looseYAML, kubectl: "created"},
		"hex-priority":   {why: looseYAML, kubectl: "created"},
		"merge-key":      {why: looseYAML, kubectl: "created"},
		"null-value":     {why: looseYAML, kubectl: "created"},
		"tag":            {why: looseYAML, kubectl: "created"},
		"text-for-bool":  {why: looseYAML, kubectl: "created"},

		"empty":               {wantsKind, "no objects passed to apply", "no document in"},
		"missing-kind":        {wantsKind, "kind not set", `the document has no "kind"`},
		"not-a-mapping":       {wantsKind, "invalid object to validate", "an object must stand here"},
		"unknown-api-version": {wantsKind, `no matches for kind "NodeConfig" in version "v1"`, `the server knows no kind "NodeConfig of v1"`},
		"unknown-kind":        {wantsKind, `no matches for kind "NodeConfg"`, `the server knows no kind "NodeConfg of tako.dev/v1alpha1"`},

		"json":                   {why: strict, kubectl: `unknown field "spec.resources[0].file.mdoe"`},
		"long-line":              {why: strict, kubectl: `unknown field "spec.resources[0].file.mdoe"`},
		"long-line-before":       {why: strict, kubectl: `unknown field "spec.resources[0].requires"`},
		"misplaced-mode":         {why: strict, kubectl: `unknown field "spec.resources[0].mode"`},
		"misspelt-name-is-named": {why: strict, kubectl: `unknown field "spec.resources[0].nmae"`},
		"unknown-field":          {why: strict, kubectl: `unknown field "spec.resources[0].file.contnet"`},
		"unknown-field-far":      {why: strict, kubectl: `unknown field "spec.resources[0].file.colour"`},
		"unknown-spec-field":     {why: strict, kubectl: `unknown field "spec.priorty"`},
		"unknown-type":           {why: strict, kubectl: `unknown field "spec.resources[0].fiel"`},

		"bool-for-text":        {why: types, kubectl: "spec.resources.file.content of type string"},
		"list-for-text":        {why: types, kubectl: "spec.resources.file.path of type string"},
		"mapping-for-list":     {why: types, kubectl: "cannot unmarshal object into Go struct field NodeConfigSpec.spec.resources"},
		"no-space-after-colon": {why: types, kubectl: "cannot unmarshal string into Go struct field Resource.spec.resources.file"},
		"number-for-text":      {why: types, kubectl: "spec.resources.file.content of type string"},
		"quoted-priority":      {why: types, kubectl: "spec.priority of type int"},
		"text-for-list":        {why: types, kubectl: "spec.resources.require"},
		"text-for-mapping":     {why: types, kubectl: "cannot unmarshal string into Go struct field Resource.spec.resources.file"},

		"missing-spec":   {why: goneInJSON, kubectl: `spec.resources: Invalid value: TK0413: spec has no "resources"; write resources: []`},
		"null-resources": {why: goneInJSON, kubectl: `spec.resources: Invalid value: TK0413: spec has no "resources"; write resources: []`},
		"null-item":      {why: goneInJSON, kubectl: "spec.resources[0]: Invalid value: TK0416: the resource has no type"},

		"bad-label":         {why: alsoLibrary, kubectl: `metadata.labels['a b']: Invalid value: TK0414: "a b" is not a label key; up to 63 letters`},
		"bad-metadata-name": {why: alsoLibrary, kubectl: `metadata.name: Invalid value: TK0414: "Web_1" is not a name; up to 253`},
	}
	for _, name := range []string{
		"bad-indentation", "control-character", "open-bracket", "open-quote", "second-colon", "star-text", "tab", "two-documents", "unknown-escape",
	} {
		all[name] = difference{why: readsYAML, kubectl: "error parsing"}
	}
	return all
}
