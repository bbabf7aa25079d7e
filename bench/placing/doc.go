// Package placing measures the decisions of the scheduler by themselves, on one core: no store, no network. It runs the benchmarks of
// internal/scheduler in a process of their own, and those of SwarmKit's scheduler, which it fetches as a module.
package placing
