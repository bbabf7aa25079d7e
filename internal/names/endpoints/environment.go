package endpoints

import (
	"strconv"
	"strings"

	"tako.dev/tako/internal/names"
)

// variablesMax bounds what a task is told by its environment: some 60 kB, of the quarter of the stack, 2 MB, that Linux takes (execve(2)).
const variablesMax = 1000

// Environment is what a task of a namespace learns of services by its environment, as NAME=VALUE: where the files are (document is the path of one, empty where there is none), the domain of its
// namespace, and of each service of it that has a ready instance where one of them is. Rotate says which: each instance gives another
// number, or all would go to the same one. Workload web with port http gives, as Kubernetes has it,
//
//	WEB_SERVICE_HOST  WEB_SERVICE_PORT  WEB_SERVICE_PORT_HTTP
//
// of which the second is that of the port declared first. Where there are very many, the last workloads by name are left out.
func Environment(x *names.Index, namespace, document string, rotate uint64) []string {
	env := []string{"TAKO_DOMAIN=" + x.Zone(namespace)}
	if document != "" {
		env = append(env, "TAKO_ENDPOINTS="+document)
	}
	set := map[string]bool{}
	add := func(name, value string) {
		if !set[name] { // the name of one workload may go on as a port of another one does
			set[name] = true
			env = append(env, name+"="+value)
		}
	}
	told := ""
	for s := range x.ServicesOf(namespace) {
		if s.Workload == told || len(s.Instances) == 0 {
			continue
		}
		i := s.Instances[rotate%uint64(len(s.Instances))]
		if len(i.Addresses) == 0 {
			continue
		}
		told = s.Workload
		if len(env)+2+len(i.Endpoints) > variablesMax {
			break
		}
		add(variable(told)+"_SERVICE_HOST", i.Addresses[0].String())
		add(variable(told)+"_SERVICE_PORT", strconv.Itoa(int(i.Endpoints[0].Number)))
		for _, e := range i.Endpoints {
			add(variable(told)+"_SERVICE_PORT_"+upper(e.Name), strconv.Itoa(int(e.Number)))
		}
	}
	return env
}

// variable is a workload's name as variables begin with it, which is not with a digit.
func variable(workload string) string {
	if workload[0] >= '0' && workload[0] <= '9' {
		return "_" + upper(workload)
	}
	return upper(workload)
}

func upper(s string) string { return strings.ReplaceAll(strings.ToUpper(s), "-", "_") }
