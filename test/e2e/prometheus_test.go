// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/api"
	terms "github.com/divvy-gpu/divvy/internal/share"
)

// prometheus finds the server: in the path, or where scripts/promtool puts it.
func prometheus(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("prometheus")
	if err != nil {
		path = filepath.Join(root(t), "build", "promtool", "prometheus")
		_, err = os.Stat(path)
	}
	if err != nil {
		if os.Getenv("DIVVY_NEED_PROMTOOL") != "" {
			t.Fatalf("no prometheus: %v", err)
		}
		t.Skipf("no prometheus in the path, or from scripts/promtool build/promtool: %v", err)
	}
	return path
}

// start starts a program that runs until the test ends.
func start(t *testing.T, env []string, log, program string, args ...string) {
	t.Helper()
	file, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	command := exec.CommandContext(context.Background(), program, args...)
	command.Env, command.Stdout, command.Stderr = env, file, file
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		if text, err := os.ReadFile(log); t.Failed() && err == nil {
			t.Logf("%s:\n%s", filepath.Base(program), tail(string(text), 2000))
		}
	})
}

// query asks Prometheus, and returns how many series it has for that.
func query(address, expression string) (int, error) {
	response, err := http.Get("http://" + address + "/api/v1/query?" + url.Values{"query": {expression}}.Encode())
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	var answer struct {
		Status, Error string
		Data          struct{ Result []json.RawMessage }
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return 0, err
	}
	if answer.Status != "success" {
		return 0, fmt.Errorf("%s: %s", answer.Status, answer.Error)
	}
	return len(answer.Data.Result), nil
}

// dashboard12239 is what Grafana's dashboard for dcgm-exporter asks for, but for how busy tensor cores are,
// which only DCGM measures: its panels, and the variables in their braces.
var dashboard12239 = []string{
	`DCGM_FI_DEV_GPU_TEMP{instance=~"$instance", gpu=~"$gpu"}`,
	`avg(DCGM_FI_DEV_GPU_TEMP{instance=~"$instance", gpu=~"$gpu"})`,
	`DCGM_FI_DEV_POWER_USAGE{instance=~"$instance", gpu=~"$gpu"}`,
	`sum(DCGM_FI_DEV_POWER_USAGE{instance=~"$instance", gpu=~"$gpu"})`,
	`DCGM_FI_DEV_SM_CLOCK{instance=~"$instance", gpu=~"$gpu"} * 1000000`,
	`DCGM_FI_DEV_GPU_UTIL{instance=~"$instance", gpu=~"$gpu"}`,
	`DCGM_FI_DEV_FB_USED{instance=~"$instance", gpu=~"$gpu"}`,
	`count by (instance) (DCGM_FI_DEV_GPU_TEMP)`, `count by (gpu) (DCGM_FI_DEV_GPU_TEMP)`,
}

// TestPrometheus: a real Prometheus scrapes a real agent, takes the rules, and has data for each
// panel of the dashboard.
func TestPrometheus(t *testing.T) {
	t.Parallel()
	server := prometheus(t)
	h := newHost(t, hostOptions{agentFlags: []string{"--dcgm-metrics"}})
	h.load(t, h.spec(t, api.ShareSpec{Name: "a", MemoryBytes: 2 << 30, CoresPercent: 30, Tenant: "lab"}), 1000)
	h.load(t, h.spec(t, api.ShareSpec{Name: "b", MemoryBytes: 2 << 30, Policy: terms.Equal}), 1000)
	where := filepath.Join(h.directory, "web.log")
	start(t, append(h.Unheld(), "DIVVY_AGENT="+h.AgentSocket), where, divvy(t), "web", "--listen", "127.0.0.1:0")
	target := ""
	eventually(t, "divvy web listens", func() error {
		text, err := os.ReadFile(where)
		if err != nil {
			return err
		}
		found, ok := false, false
		if target, found = strings.CutPrefix(strings.TrimSpace(string(text)), "http://"); found {
			target, _, ok = strings.Cut(target, "/metrics")
		}
		if !ok {
			return fmt.Errorf("it says %q", text)
		}
		return nil
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	rules := filepath.Join(root(t), "deploy", "prometheus", "rules.yaml")
	config := filepath.Join(h.directory, "prometheus.yml")
	if err := os.WriteFile(config, fmt.Appendf(nil, `global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
  - {job_name: divvy, static_configs: [{targets: [%q]}]}
  - {job_name: dcgm, metrics_path: /metrics/dcgm, static_configs: [{targets: [%[2]q]}]}
`, rules, target), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, os.Environ(), filepath.Join(h.directory, "prometheus.log"), server, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(h.directory, "tsdb"), "--web.listen-address="+address)
	has := func(expression string) {
		t.Helper()
		eventually(t, expression, func() error {
			n, err := query(address, expression)
			if err == nil && n == 0 {
				err = fmt.Errorf("there is no such series")
			}
			return err
		}, h.agent)
	}
	has(`up{job="divvy"} == 1`)
	raw, err := os.ReadFile(filepath.Join(root(t), "deploy", "grafana", "divvy.json"))
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal(raw, &dashboard); err != nil {
		t.Fatal(err)
	}
	variables := strings.NewReplacer("$gpu", ".*", "$tenant", ".*", "$__rate_interval", "10s")
	panels := 0
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			has(variables.Replace(target.Expr))
			panels++
		}
	}
	if panels < 30 {
		t.Errorf("%d queries", panels)
	}
	has(`up{job="dcgm"} == 1`)
	for _, expression := range dashboard12239 {
		has(strings.NewReplacer("$instance", ".*", "$gpu", "0").Replace(expression))
	}
	for _, expression := range []string{
		`sum(DCGM_FI_DEV_FB_USED) > 0`, "DCGM_FI_DEV_MEM_COPY_UTIL", "DCGM_FI_DEV_ENC_UTIL", "DCGM_FI_DEV_DEC_UTIL", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION > 0",
		"DCGM_FI_DEV_XID_ERRORS == 0", "DCGM_FI_DEV_ROW_REMAP_FAILURE == 0",
	} {
		has(expression)
	}
	response, err := http.Get("http://" + address + "/api/v1/rules")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var loaded struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, Health, State string }
			}
		}
	}
	if err := json.NewDecoder(response.Body).Decode(&loaded); err != nil || len(loaded.Data.Groups) == 0 {
		t.Fatalf("%+v %v", loaded, err)
	}
	for _, group := range loaded.Data.Groups {
		for _, rule := range group.Rules {
			if rule.Health == "err" || rule.State == "firing" {
				t.Errorf("%+v on a machine that is well", rule)
			}
		}
	}
}
