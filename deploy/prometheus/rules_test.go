// SPDX-License-Identifier: Apache-2.0

// Package prometheus holds the tests of what deploy/prometheus has for Prometheus: alerts and
// examples that name metrics which exist, each alert with a runbook and, by promtool, tried both
// ways.
package prometheus

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// rule is an alert.
type rule struct {
	Alert       string
	Expr        string
	Labels      map[string]string
	Annotations map[string]string
}

func parse(t *testing.T, path string, into any) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err == nil {
		err = yaml.Unmarshal(raw, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func rules(t *testing.T) (all []rule) {
	t.Helper()
	var file struct {
		Groups []struct{ Rules []rule }
	}
	parse(t, "rules.yaml", &file)
	for _, group := range file.Groups {
		all = append(all, group.Rules...)
	}
	if len(all) == 0 {
		t.Fatal("there are no rules")
	}
	return all
}

// metrics are those of the generated list, each with its labels; internal/metrics tests that it
// is what the code has.
func metrics(t *testing.T) map[string][]string {
	t.Helper()
	raw, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(raw), "<!-- generated:")
	quoted := regexp.MustCompile("`([^`]+)`")
	found := map[string][]string{}
	var common []string
	for line := range strings.Lines(list) {
		switch {
		case strings.HasPrefix(line, "### "):
			common = nil
		case strings.HasPrefix(line, "Labels: "):
			for _, label := range quoted.FindAllStringSubmatch(line, -1) {
				common = append(common, label[1])
			}
		case strings.HasPrefix(line, "| `"):
			cells := strings.Split(line, "|")
			labels := slices.Clone(common)
			for _, label := range quoted.FindAllStringSubmatch(cells[3], -1) {
				labels = append(labels, label[1])
			}
			found[strings.Trim(cells[1], " `")] = labels
		}
	}
	if len(found) < 40 {
		t.Fatalf("docs/metrics.md lists %d metrics", len(found))
	}
	return found
}

var (
	metricName = regexp.MustCompile(`\bdivvy_[a-z0-9_]+`)
	selectors  = regexp.MustCompile(`\b(divvy_[a-z0-9_]+)\{([^}]*)\}`)
	matcher    = regexp.MustCompile(`\s*([a-zA-Z_]+)\s*(?:=~|!~|!=|=)`)
	fromScrape = []string{"job", "instance"} // labels that Prometheus gives
)

// checkQuery says whether a query names metrics and labels that exist.
func checkQuery(t *testing.T, known map[string][]string, where, query string) {
	t.Helper()
	for _, name := range metricName.FindAllString(query, -1) {
		if _, there := known[name]; !there {
			t.Errorf("%s: there is no metric %s", where, name)
		}
	}
	for _, selector := range selectors.FindAllStringSubmatch(query, -1) {
		for _, label := range matcher.FindAllStringSubmatch(selector[2], -1) {
			if !slices.Contains(known[selector[1]], label[1]) && !slices.Contains(fromScrape, label[1]) {
				t.Errorf("%s: %s has no label %s", where, selector[1], label[1])
			}
		}
	}
}

// Every alert is on metrics that exist, and leads to a runbook that names its command.
func TestRules(t *testing.T) {
	known := metrics(t)
	raw, err := os.ReadFile("../../docs/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	runbooks := map[string]string{}
	for _, section := range strings.Split(string(raw), "\n### ")[1:] {
		name, text, _ := strings.Cut(section, "\n")
		runbooks[name], _, _ = strings.Cut(text, "\n## ")
	}
	label := regexp.MustCompile(`\s*\{\{.*`)
	seen := map[string]bool{}
	for _, r := range rules(t) {
		if seen[r.Alert] {
			t.Errorf("%s is given twice", r.Alert)
		}
		seen[r.Alert] = true
		checkQuery(t, known, r.Alert, r.Expr)
		if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) || r.Annotations["summary"] == "" {
			t.Errorf("%s: %v %v", r.Alert, r.Labels, r.Annotations)
		}
		if !strings.HasSuffix(r.Annotations["runbook_url"], "/docs/alerts.md#"+strings.ToLower(r.Alert)) {
			t.Errorf("%s: its runbook is %s", r.Alert, r.Annotations["runbook_url"])
		}
		command := label.ReplaceAllString(r.Annotations["command"], "")
		if text := runbooks[r.Alert]; !strings.HasPrefix(command, "divvy ") || !strings.Contains(text, "`"+command) || !strings.Contains(text, "`"+r.Labels["severity"]+"`") {
			t.Errorf("%s: docs/alerts.md has no such heading, or its text lacks `%s` or `%s`", r.Alert, command, r.Labels["severity"])
		}
	}
	for name := range runbooks {
		if !seen[name] {
			t.Errorf("docs/alerts.md tells of %s, which is no alert", name)
		}
	}
}

// Every alert is tried both ways.
func TestRulesAreTried(t *testing.T) {
	var file struct {
		Tests []struct {
			InputSeries []struct{ Series string } `yaml:"input_series"`
			Alerts      []struct {
				Name string `yaml:"alertname"`
				Want []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	parse(t, "rules_test.yaml", &file)
	known := metrics(t)
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, input := range test.InputSeries {
			checkQuery(t, known, "rules_test.yaml", input.Series)
		}
		for _, alert := range test.Alerts {
			if len(alert.Want) > 0 {
				fires[alert.Name] = true
			} else {
				silent[alert.Name] = true
			}
		}
	}
	for _, r := range rules(t) {
		if !fires[r.Alert] || !silent[r.Alert] {
			t.Errorf("%s: no test in which it fires, or none in which it does not", r.Alert)
		}
	}
}

// dashboard is what is looked at of Grafana's.
type dashboard struct {
	Panels []struct {
		ID         int
		Type       string
		Title      string
		Datasource struct{ UID string }
		Targets    []struct{ Expr string }
	}
	Templating struct {
		List []struct{ Name, Definition string }
	}
}

// Every panel and every variable of the dashboard asks for what there is.
func TestDashboard(t *testing.T) {
	raw, err := os.ReadFile("../grafana/divvy.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(raw, &d); err != nil {
		t.Fatal(err)
	}
	known, ids := metrics(t), map[int]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" {
			t.Errorf("panel %d, %q: there is another one, or it has no title", p.ID, p.Title)
		}
		ids[p.ID] = true
		if p.Type == "row" {
			continue
		}
		if p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 {
			t.Errorf("%s: %+v", p.Title, p)
		}
		for _, target := range p.Targets {
			if !metricName.MatchString(target.Expr) {
				t.Errorf("%s: %s asks for nothing of Divvy's", p.Title, target.Expr)
			}
			checkQuery(t, known, p.Title, target.Expr)
		}
	}
	for _, v := range d.Templating.List {
		checkQuery(t, known, v.Name, v.Definition)
	}
}

// So do the examples of autoscalers.
func TestExamples(t *testing.T) {
	known := metrics(t)
	for _, name := range []string{"keda.yaml", "hpa.yaml"} {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(string(raw), "divvy_full_shares", "") // is made by the adapter
		checkQuery(t, known, name, text)
		if !metricName.MatchString(text) {
			t.Errorf("%s asks for nothing of Divvy's", name)
		}
		decoder := yaml.NewDecoder(bytes.NewReader(raw))
		for {
			var document map[string]any
			if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
				break
			} else if err != nil || len(document) == 0 {
				t.Fatalf("%s: %v %v", name, document, err)
			}
		}
	}
}

// promtool finds it: $DIVVY_PROMTOOL, in the path, or where scripts/promtool puts it.
func promtool(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("DIVVY_PROMTOOL"); path != "" {
		return path
	}
	if path, err := exec.LookPath("promtool"); err == nil {
		return path
	}
	path, err := filepath.Abs("../../build/promtool/promtool")
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		if os.Getenv("DIVVY_NEED_PROMTOOL") != "" {
			t.Fatalf("no promtool: %v", err)
		}
		t.Skipf("no promtool in the path, in $DIVVY_PROMTOOL, or from scripts/promtool build/promtool: %v", err)
	}
	return path
}

// Prometheus takes the rules and the scrape configuration, and each alert fires when it should.
func TestPromtool(t *testing.T) {
	tool := promtool(t)
	for _, args := range [][]string{{"check", "rules", "rules.yaml"}, {"check", "config", "scrape.yaml"}, {"test", "rules", "rules_test.yaml"}} {
		if out, err := exec.CommandContext(t.Context(), tool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}
