// Command cases merges what a run of case tests recorded (internal/casetest) into one file, cases.json, and says whether every
// case that was wanted was really done: it fails for one that failed, that no test is bound to, that checked nothing, or that was
// skipped (unless -allow-skips: for a machine that lacks what the tests need).
//
//	TAKO_CASES=DIR go test -count=1 -run '^TestAgentCase' ./...
//	go run ./tools/cases -dir DIR -out cases.json -want agent:1-17,19
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"

	"tako.dev/tako/internal/casetest"
)

func main() {
	dir := flag.String("dir", "", "`directory` that $TAKO_CASES named in the run")
	out := flag.String("out", "cases.json", "`file` to write")
	want := flag.String("want", "", "the cases that must have been done, as in `agent:1-17,19`")
	allowSkips := flag.Bool("allow-skips", false, "a skipped case is listed, and is not a failure")
	flag.Parse()
	faults, err := run(*dir, *out, *want, *allowSkips)
	if err != nil {
		fmt.Fprintln(os.Stderr, "cases:", err)
		os.Exit(2)
	}
	for _, f := range faults {
		fmt.Fprintln(os.Stderr, f)
	}
	if len(faults) > 0 {
		os.Exit(1)
	}
}

func run(dir, out, want string, allowSkips bool) (faults []string, err error) {
	wanted, err := parseWant(want)
	if err != nil {
		return nil, err
	}
	rows, err := casetest.ReadRows(dir)
	if err != nil {
		return nil, err
	}
	cases := merge(rows, wanted)
	text, err := marshal(cases)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(out, text, 0o644); err != nil {
		return nil, err
	}
	fmt.Println(summary(cases))
	return judge(cases, allowSkips), nil
}

func marshal(cases []Case) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(cases)
	return b.Bytes(), err
}

func summary(cases []Case) string {
	count := map[casetest.Result]int{}
	for _, c := range cases {
		count[c.Result]++
	}
	words := []string{fmt.Sprintf("cases: %d of %d passed", count[casetest.Pass], len(cases))}
	for _, r := range []casetest.Result{casetest.Fail, casetest.Skip, casetest.Missing} {
		if count[r] > 0 {
			words = append(words, fmt.Sprintf("%d %s", count[r], r))
		}
	}
	return strings.Join(words, ", ")
}
