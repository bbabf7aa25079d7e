package fit

import (
	"fmt"
	"strconv"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/catalog"
)

// amountMax bounds each amount of a request: 1 PiB, or as many thousandths of a processor. What thousands of instances hold together is
// below what an int64 holds by then.
const amountMax = 1 << 50

// Amounts are how much of what can be divided.
type Amounts struct {
	CPU    int64 // thousandths of a processor
	Memory int64 // bytes
	Disk   int64 // bytes
	// Instances is how many: each is one, and a node has places for so many. A node that says 0 has InstancesMax.
	Instances int64
}

// InstancesMax is how many instances a node may have: what can be told of one.
const InstancesMax = catalog.InstancesMax

// Placed is what a node has, with the places for instances that it has where it does not say.
func (a Amounts) Placed() Amounts {
	if a.Instances == 0 {
		a.Instances = InstancesMax
	}
	return a
}

// Plus is both together.
func (a Amounts) Plus(b Amounts) Amounts {
	return Amounts{a.CPU + b.CPU, a.Memory + b.Memory, a.Disk + b.Disk, a.Instances + b.Instances}
}

// Minus is what is left of a without b; it may be less than nothing.
func (a Amounts) Minus(b Amounts) Amounts {
	return Amounts{a.CPU - b.CPU, a.Memory - b.Memory, a.Disk - b.Disk, a.Instances - b.Instances}
}

// Within reports whether left has all of a. Of what is not asked for there may be less than nothing.
func (a Amounts) Within(left Amounts) bool {
	return (a.CPU == 0 || a.CPU <= left.CPU) && (a.Memory == 0 || a.Memory <= left.Memory) && (a.Disk == 0 || a.Disk <= left.Disk) &&
		(a.Instances == 0 || a.Instances <= left.Instances)
}

// compileAmounts reads what a task requests.
func compileAmounts(declared workload.Amounts) (Amounts, error) {
	var a Amounts
	var err error
	if a.CPU, err = bounded("cpu", declared.CPU.Milli); err != nil {
		return Amounts{}, err
	}
	if a.Memory, err = bounded("memory", declared.Memory.Value); err != nil {
		return Amounts{}, err
	}
	if a.Disk, err = bounded("disk", declared.Disk.Value); err != nil {
		return Amounts{}, err
	}
	return a, nil
}

func bounded(field string, read func() (int64, error)) (int64, error) {
	n, err := read()
	switch {
	case err != nil:
		return 0, fmt.Errorf("%s: %w", field, err)
	case n < 0:
		return 0, fmt.Errorf("%s: %d is less than nothing", field, n)
	case n > amountMax:
		return 0, fmt.Errorf("%s: %d is more than any node has", field, n)
	}
	return n, nil
}

// cpuText is an amount of processors as it is declared.
func cpuText(milli int64) string {
	if milli%1000 == 0 {
		return strconv.FormatInt(milli/1000, 10)
	}
	return strconv.FormatInt(milli, 10) + "m"
}

// bytesText is an amount of bytes as it is declared, rounded away from what would mislead: up what is needed, down what there is.
func bytesText(n int64, up bool) string {
	sign := ""
	if n < 0 {
		sign, n, up = "-", -n, !up
	}
	units := [...]struct {
		name string
		size int64
	}{{"Ti", 1 << 40}, {"Gi", 1 << 30}, {"Mi", 1 << 20}, {"Ki", 1 << 10}}
	for i, u := range units {
		if n%u.size == 0 && n > 0 {
			return sign + strconv.FormatInt(n/u.size, 10) + u.name
		}
		// Of what is no round number, three or more digits are enough.
		if n >= u.size*100 || i == len(units)-1 && n >= u.size {
			if up {
				n += u.size - 1
			}
			return sign + strconv.FormatInt(n/u.size, 10) + u.name
		}
	}
	return sign + strconv.FormatInt(n, 10)
}
