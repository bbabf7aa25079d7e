package report

import (
	"testing"

	"tako.dev/tako/declare"
)

func TestNames(t *testing.T) {
	for subject, want := range map[string]bool{
		"file/motd": true, "motd": true, "path:/etc/motd": true, "/etc/motd": true,
		"": false, "file": false, "etc/motd": false, "file/mot": false, "path": false,
	} {
		if got := Names(subject, "file/motd", declare.Claim{Kind: declare.ClaimPath, ID: "/etc/motd"}); got != want {
			t.Errorf("%q names file/motd: %v", subject, got)
		}
	}
}
