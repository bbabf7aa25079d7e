// Package placing measures the decisions of the scheduler by themselves, on one core: no store, no network. It runs the benchmarks of
// internal/scheduler in a process of their own.
package placing
