package wire

import (
	"fmt"
	"testing"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/spectest"
)

const reference = "../../../docs/spec/transfer.md"

// TestReference: docs/spec/transfer.md says what the messages are.
func TestReference(t *testing.T) {
	for name, types := range map[string][]string{
		"problem": {"Problem"},
		"join":    {"JoinRequest", "RenewRequest", "Credentials"},
		"watch":   {"WatchRequest", "Frame", "Question"},
		"report":  {"Report", "Session", "Verdict", "Counts", "ConfigReport", "Resource", "Statement", "Refused", "Usage", "Host", "Disk", "Interface", "Instance", "InstancePort", "Offers", "StatusReply"},
		"sync":    {"SyncRequest"},
		"parts":   {"packedPart"},
		"nodes":   {"NodesRequest", "NodesReply"},
		"news":    {"NewsRequest", "StatementMark", "NewsReply", "Deposit"},
		"relay":   {"RelayUp", "RelayedAgent", "Vouched", "RelayDown", "RelayedNews"},
		"names":   {"NamesRequest", "NamesMark", "Names"},
		"export":  {"Export"},
	} {
		spectest.Fields(t, reference, name, types...)
	}
	spectest.Bounds(t, reference, "Bounds of messages", map[string]any{
		"join bytes": JoinMax, "request bytes": RequestMax, "frame bytes": FrameMax, "reply bytes": ReplyMax, "answer bytes": AnswerMax, "hashes": HashesMax,
		"part bytes": PartBytesMax, "message text bytes": MessageMax, "fact bytes": FactMax, "facts": factsMax, "facts bytes": factsBytesMax, "name bytes": nameMax,
		"session bytes": sessionMax, "title bytes": titleMax, "problems": ProblemsMax, "configs": catalog.LayersMax + 1, "statements": StatementsMax, "disks": DisksMax,
		"interfaces": InterfacesMax, "addresses": AddressesMax, "relayed agents": RelayedMax, "relayed questions": QuestionsMax, "relayed deposits": RelayedDepositsMax, "relayed deposits bytes": RelayedDepositsBytesMax,
		"relayed certificate bytes": CertificateMax, "relayed head bytes": HeadMax, "subject bytes": subjectMax,
		"changes": ChangesMax, "servers": ServersMax, "list bytes": ListMax, "news bytes": NewsMax, "news statements": NewsStatementsMax, "deposit bytes": DepositMax,
		"instances": catalog.InstancesMax, "instance message bytes": InstanceMessageMax, "revision hash bytes": RevisionHashMax, "instances bytes": InstancesBytesMax, "names rows": NamesRowsMax, "names row bytes": NamesRowMax, "names key bytes": NamesKeyMax, "edition bytes": EditionMax, "images": ImagesMax, "image name bytes": ImageNameMax, "offers": OffersMax, "directories": DirectoriesMax,
	})
	if windowMax != 512<<10 {
		t.Errorf("the page says another window than %d bytes", windowMax)
	}
	o := decoding.DecOptions()
	spectest.Bounds(t, reference, "CBOR of messages", map[string]any{"depth": o.MaxNestedLevels, "elements": o.MaxArrayElements, "pairs": o.MaxMapPairs})
	verdicts, leavings := map[string]any{}, map[string]any{"Here": Here, "Ended": Ended, "Lost": Lost}
	for v := Pending; v <= Quarantined; v++ {
		verdicts[v.String()] = uint8(v)
	}
	spectest.Table(t, reference, "verdict", verdicts)
	phases := map[string]any{}
	for p := InstancePlaced; p <= InstanceDone; p++ {
		phases[p.String()] = uint8(p)
	}
	spectest.Table(t, reference, "phase", phases)
	if instanceBytes != 64 || portBytes != 8 {
		t.Error("the page says otherwise how instances are counted")
	}
	spectest.Table(t, reference, "left", leavings)
	spectest.Table(t, reference, "kind", map[string]any{"delta": SyncDelta, "unknown base": SyncUnknownBase, "snapshot": SyncSnapshot})
}

// TestReferenceOfCodes: the page says what each code is to who gets it.
func TestReferenceOfCodes(t *testing.T) {
	retry := map[reason.Retry]string{reason.Never: "never", reason.BackOff: "back off", reason.WaitThen: "wait"}
	codes := map[string]any{}
	for _, c := range []reason.Code{
		reason.LaterVersion, reason.RateLimited, reason.ObjectComing, reason.ObjectMissing, reason.BundleMissing, reason.ObjectRefused, reason.StateCorrupt, reason.TrustRefused, reason.SignaturesMissing,
		reason.CertificateRefused, reason.CertificateTime, reason.TokenMalformed, reason.TokenRefused, reason.TokenTime, reason.HeadRefused, reason.StatementRefused,
		reason.NameTaken, reason.IdentityGone, reason.JoinRequestInvalid, reason.CallMalformed, reason.NotListed, reason.RootUnknown, reason.TransferBusy,
		reason.AnswerRefused, reason.TransferWrong, reason.WrongCluster, reason.PlaceUnusable, reason.RollbackSuspected, reason.ServerBehind, reason.ServerUnreachable,
		reason.ObjectUnknown,
	} {
		row, known := reason.Lookup(c)
		if !known {
			t.Fatalf("%s is not known", c)
		}
		codes[c.String()] = fmt.Sprintf("%d, %s", row.HTTP, retry[row.Retry])
	}
	spectest.Bounds(t, reference, "Codes", codes)
}
