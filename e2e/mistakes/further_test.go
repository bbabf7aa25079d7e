//go:build e2e

package mistakes

import (
	"fmt"
	"strings"
)

// mistake is a document with a mistake beside those of present.
type mistake struct {
	name    string
	cluster bool   // a ClusterNodeConfig
	spec    string // without its indentation
}

// further lists mistakes that come through kubectl's own reader: those of meaning, and of the order of resources.
func further() []mistake {
	resources := func(name, list string) mistake {
		return mistake{name: name, spec: "resources:\n" + indented(list)}
	}
	empty := func(name, rest string) mistake { return mistake{name: name, spec: rest + "\nresources: []"} }
	return append(ofContents(resources),
		empty("cluster-label", "selector: {matchLabels: {role: \"web server\"}}"),
		empty("selector-key", "selector: {matchExpressions: [{key: \"a b\", operator: Exists}]}"),
		empty("selector-value", "selector: {matchExpressions: [{key: zone, operator: In, values: [\"a b\"]}]}"),
		empty("selector-absent-values", "selector: {matchExpressions: [{key: zone, operator: DoesNotExist, values: [a]}]}"),
		empty("selector-labels", "selector: {matchLabels: {"+repeated("l%d: v", 257)+"}}"),
		empty("selector-conditions", "selector: {matchExpressions: ["+repeated("{key: k%d, operator: Exists}", 257)+"]}"),
		empty("selector-values", "selector: {matchExpressions: [{key: zone, operator: In, values: ["+repeated("v%d", 1001)+"]}]}"),
		empty("wave-operator", "rollout: {waves: [{matchExpressions: [{key: zone, operator: NotEquals, values: [a]}]}]}"),
		empty("max-unavailable-zero", "rollout: {maxUnavailable: \"0\"}"),
		empty("max-unavailable-percent", "rollout: {maxUnavailable: \"101%\"}"),
		empty("max-unavailable-word", "rollout: {maxUnavailable: \"few\"}"),
		empty("halt-on-failed", "rollout: {haltOnFailed: -1}"),
		empty("try-word", "rollout: {try: soon}"),
		empty("try-long", "rollout: {try: 25h}"),
		empty("priority-negative", "priority: -5"),
		mistake{name: "cluster-priority", cluster: true, spec: "priority: 100\nresources: []"},

		resources("path-nul", `- {name: a, file: {path: "/a\0b"}}`),
		resources("path-name-long", "- {name: a, file: {path: /"+strings.Repeat("n", 256)+"}}"),
		resources("path-long", "- {name: a, directory: {path: "+strings.Repeat("/directory", 410)+"}}"),
		resources("path-temporary", "- {name: a, file: {path: /etc/.tako.motd}}"),
		resources("path-dots", "- {name: a, symlink: {path: /etc/../motd, target: /b}}"),
		resources("target-nul", `- {name: a, symlink: {path: /a, target: "b\0c"}}`),
		resources("target-long", "- {name: a, symlink: {path: /a, target: "+strings.Repeat("long", 1024)+"}}"),
		resources("directory-without-path", "- {name: a, directory: {}}"),
		resources("mode-prefix", `- {name: a, file: {path: /a, mode: "0o644"}}`),
		resources("mode-above", `- {name: a, file: {path: /a, mode: "17777"}}`),
		resources("mode-letters", `- {name: a, file: {path: /a, mode: "rw-r--r--"}}`),
		resources("directory-mode", `- {name: a, directory: {path: /a, mode: "0799"}}`),
		resources("symlink-owner", `- {name: a, symlink: {path: /a, target: /b, owner: "web master"}}`),
		resources("file-group", `- {name: a, file: {path: /a, group: "www-data:adm"}}`),
		resources("check-without-program", `- {name: a, file: {path: /a, check: ["{}", "{}"]}}`),
		resources("check-arguments", "- {name: a, file: {path: /a, check: [test, \"{}\", "+repeated("a%d", 1000)+"]}}"),
		resources("check-nul", `- {name: a, file: {path: /a, check: [test, "{}", "a\0b"]}}`),

		resources("package-name", "- {name: x, package: {}}"),
		resources("package-state", "- {name: nginx, package: {state: presnt}}"),
		resources("package-version", `- {name: nginx, package: {version: ">= 1.2"}}`),
		resources("package-absent-delete", "- {name: nginx, package: {state: absent}, onRemove: delete}"),
		resources("unit-name", "- {name: web, service: {unit: nginx@ web}}"),
		resources("unit-device", "- {name: web, service: {unit: dev-sda.device}}"),
		resources("service-state", "- {name: nginx, service: {state: runing}}"),
		resources("service-answer", "- {name: nginx, service: {onNotify: relaod}}"),

		resources("require-twice", "- {name: a, file: {path: /a}}\n- {name: b, file: {path: /b}, require: [a, a]}"),
		resources("notify-nobody", "- {name: a, file: {path: /a}, notify: [nginx]}\n- {name: ngnx, service: {}}"),
		resources("notify-itself", "- {name: nginx, service: {}, notify: [nginx]}"),
		resources("package-twice", "- {name: nginx, package: {}}\n- {name: web, package: {package: nginx}}"),
		resources("unit-twice", "- {name: nginx, service: {}}\n- {name: web, service: {unit: nginx.service}}"),
		resources("several-at-once", "- {name: a, file: {path: a, mode: \"9\"}, require: [b]}\n- {name: _, directory: {path: /}}"),

		resources("when-open-bracket", "- {name: a, file: {path: /a}, when: \"(facts.cpu.count > 2\"}"),
		resources("when-list-of-numbers", "- {name: a, file: {path: /a}, when: \"facts.hostname in ['a', 2]\"}"),
		resources("expand-owner", "- {name: a, file: {path: /a, owner: \"$(facts.nme)\"}, expand: true}"),
		resources("expand-label", "- {name: a, file: {path: /a, content: \"$(node.labels[role])\"}, expand: true}"),

		resources("cycle-of-two", "- {name: a, file: {path: /a}, notify: [web]}\n- {name: web, service: {}}\n- {name: b, file: {path: /b}, require: [web]}\n- {name: c, file: {path: /c}, require: [web], notify: [web]}"),
		resources("cycle-of-three", "- {name: c, file: {path: /1}, require: [b]}\n- {name: b, file: {path: /2}, require: [a]}\n- {name: a, file: {path: /3}, require: [c]}"),
		resources("cycles", "- {name: a, file: {path: /d}, require: [b]}\n- {name: b, file: {path: /c}, require: [a]}\n- {name: c, file: {path: /b}, require: [d]}\n- {name: d, file: {path: /a}, require: [c, a]}"),
		mistake{name: "cycle-in-cluster", cluster: true, spec: "resources:\n- {name: a, file: {path: /a}, require: [b]}\n- {name: b, file: {path: /b}, require: [a]}"},
	)
}

// ofContents lists those about where the content of a file comes from.
func ofContents(resources func(name, list string) mistake) []mistake {
	return []mistake{
		resources("content-twice", "- {name: a, file: {path: /a, content: b, contentFrom: {secret: {name: web, key: k}}}}"),
		resources("content-from-nowhere", "- {name: a, file: {path: /a, contentFrom: {}}}"),
		resources("content-from-both", "- {name: a, file: {path: /a, contentFrom: {secret: {name: web, key: k}, configMap: {name: web, key: k}}}}"),
		resources("content-without-key", "- {name: a, file: {path: /a, contentFrom: {secret: {name: web}}}}"),
		resources("content-names", "- {name: a, file: {path: /a, contentFrom: {configMap: {name: My_Web, key: a/b}}}}"),
		resources("content-namespace", "- {name: a, file: {path: /a, contentFrom: {secret: {namespace: prod, name: web, key: k}}}}"),
		resources("content-expanded", "- {name: a, file: {path: /a, contentFrom: {secret: {name: web, key: k}}}, expand: true}"),
		{name: "content-in-cluster", cluster: true, spec: "resources:\n- {name: a, file: {path: /a, contentFrom: {secret: {name: web, key: k}}}}"},
	}
}

// repeated is n members of a list or mapping in one line, numbered.
func repeated(member string, n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(member, i)
	}
	return strings.Join(all, ", ")
}
