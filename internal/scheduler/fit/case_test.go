package fit

import (
	"testing"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/casetest"
)

func TestWorkloadCase42_DevicesStayInPlace(t *testing.T) {
	c := casetest.Start(t)
	l := NewLedger(Node{Capacity: Amounts{CPU: 4000}, Devices: map[string][]string{"gpu": {"g0", "g1", "g2", "g3"}}})
	gpus := func(n int64) Request { return Request{Devices: []DeviceCount{{"gpu", n}}} }
	admit := func(name string, n int64) []Refusal { return l.Admit(name, gpus(n)) }
	c.Check(admit("other", 1) == nil && admit("web", 2) == nil, "they do not fit at first")
	l.Release("other")
	had := l.Devices("web")["gpu"]
	c.Equal(had, []string{"g1", "g2"}, "what it has at first")
	for range 3 {
		c.Check(admit("web", 2) == nil, "it cannot be changed in place")
		c.Equal(l.Devices("web")["gpu"], had, "what it has after a change in place")
	}
	c.Equal(l.Left().Devices["gpu"], int64(2), "what is left")
	c.Check(admit("web", 3) == nil, "it cannot have one more")
	c.Equal(l.Devices("web")["gpu"], []string{"g0", "g1", "g2"}, "what it has with one more")
	c.Equal(len(admit("web", 5)), 1, "refusals of more than there are")
	c.Equal(l.Devices("web")["gpu"], []string{"g0", "g1", "g2"}, "what it has after a change that was refused")
	l.Release("web")
	l.Release("web")
	c.Equal(l.Left().Devices["gpu"], int64(4), "what is left when it was released twice")
}

func TestWorkloadCase43_PortInPlace(t *testing.T) {
	c := casetest.Start(t)
	l := NewLedger(Node{Capacity: Amounts{CPU: 1000}})
	web := Request{Amounts: Amounts{CPU: 500}, Ports: []Port{{workload.TCP, 80}}}
	c.Check(l.Admit("old", web) == nil, "it does not fit at first")
	why := l.Admit("new", web)
	c.Check(len(why) == 1 && why[0].Reason == PortTaken && why[0].Holder == "old", "its successor is not told who has the port: %v", why)
	c.Equal(why[0].String(), "port 80/TCP is taken by old", "the words")
	larger := web
	larger.Amounts.CPU = 800
	c.Check(l.Admit("old", larger) == nil, "a change in place waits for its own port")
	c.Equal(l.Left().Amounts.CPU, int64(200), "what is left after a change in place")
	larger.Ports = []Port{{workload.TCP, 81}}
	c.Check(l.Admit("old", larger) == nil && l.Admit("new", Request{Ports: web.Ports}) == nil, "a port that was given up in place is not free")
	l.Release("old")
	c.Equal(len(l.Left().Ports), 1, "ports that are taken after the old one has ended")
}
