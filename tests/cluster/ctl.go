package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
)

const ctlUsage = `pointsman-cluster ctl --dir DIR COMMAND

  status
  stop|start|kill|pause|resume PART
  kubeconfig --user USER [--group GROUP]... | --serviceaccount NAMESPACE/NAME
  install|remove NEIGHBOUR
  nodes FILE
  run NAME [--env KEY=VALUE]... COMMAND ARGS...
  behave NAME [--namespace NS] [--selector k=v,...] [--annotation k=v]... [--exit-code N] BEHAVIOUR
  behave NAME --remove
  snapshot|restore|down
  '{"do":...}'    a request as the socket takes it
`

// ctl is the control protocol for people.
func ctl(args []string) error {
	flags := flag.NewFlagSet("ctl", flag.ExitOnError)
	dir := flags.String("dir", "", "the instance's directory (required)")
	flags.Usage = func() { fmt.Fprint(os.Stderr, ctlUsage) }
	_ = flags.Parse(args)
	if *dir == "" || flags.NArg() == 0 {
		return fmt.Errorf("ctl needs --dir DIR and a command; `pointsman-cluster ctl --help` lists them")
	}
	line, err := ctlRequest(flags.Args())
	if err != nil {
		return err
	}
	connection, err := net.Dial("unix", filepath.Join(*dir, "control.sock"))
	if err != nil {
		return fmt.Errorf("no instance listens in %s: is it up?", *dir)
	}
	defer connection.Close()
	if _, err := connection.Write(append(line, '\n')); err != nil {
		return err
	}
	text, err := bufio.NewReader(connection).ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("the instance in %s ended without an answer", *dir)
	}
	var answer map[string]any
	if err := json.Unmarshal(text, &answer); err != nil {
		return err
	}
	if trouble, ok := answer["error"].(string); ok {
		return fmt.Errorf("%s", trouble)
	}
	if path, ok := answer["path"].(string); ok {
		fmt.Println(path)
		return nil
	}
	pretty, err := json.MarshalIndent(answer, "", "  ")
	if err != nil {
		return err
	}
	fmt.Println(string(pretty))
	return nil
}

type manyFlag []string

func (m *manyFlag) String() string { return strings.Join(*m, ",") }

func (m *manyFlag) Set(value string) error {
	*m = append(*m, value)
	return nil
}

// ctlRequest turns the words of a command into a request; flags and words may be mixed.
func ctlRequest(words []string) ([]byte, error) {
	if strings.HasPrefix(words[0], "{") {
		return []byte(strings.ReplaceAll(strings.Join(words, " "), "\n", " ")), nil
	}
	r := request{Do: words[0]}
	var groups, env, annotations manyFlag
	var selector string
	exitCode := -1
	flags := flag.NewFlagSet("ctl "+r.Do, flag.ExitOnError)
	flags.StringVar(&r.User, "user", "", "user name")
	flags.Var(&groups, "group", "group of the user (may be repeated)")
	flags.StringVar(&r.ServiceAccount, "serviceaccount", "", "namespace/name")
	flags.Var(&env, "env", "KEY=VALUE for the program (may be repeated)")
	flags.StringVar(&r.Namespace, "namespace", "", "pods of this namespace (default: of all)")
	flags.StringVar(&selector, "selector", "", "pods with these labels: k=v,...")
	flags.Var(&annotations, "annotation", "k=v for the pods (may be repeated)")
	flags.IntVar(&exitCode, "exit-code", -1, "exit code of failing containers")
	flags.BoolVar(&r.Remove, "remove", false, "remove the rule")
	var free []string
	for rest := words[1:]; len(rest) > 0; {
		_ = flags.Parse(rest)
		rest = flags.Args()
		if r.Do == "run" && len(free) == 1 { // the rest is the program's own
			free = append(free, rest...)
			break
		}
		if len(rest) > 0 {
			free = append(free, rest[0])
			rest = rest[1:]
		}
	}
	r.Groups = groups
	if exitCode >= 0 {
		r.ExitCode = &exitCode
	}
	var err error
	if r.Env, err = keyValues(env); err != nil {
		return nil, err
	}
	if r.Annotations, err = keyValues(annotations); err != nil {
		return nil, err
	}
	if selector != "" {
		if r.Selector, err = keyValues(strings.Split(selector, ",")); err != nil {
			return nil, err
		}
	}
	if err := r.takeWords(free); err != nil {
		return nil, err
	}
	return json.Marshal(r)
}

func (r *request) takeWords(words []string) error {
	var targets []*string
	switch r.Do {
	case "stop", "start", "kill", "pause", "resume":
		targets = []*string{&r.Part}
	case "install", "remove":
		targets = []*string{&r.Neighbour}
	case "nodes":
		targets = []*string{&r.File}
	case "behave":
		targets = []*string{&r.Name, &r.Behaviour}
	case "run":
		if len(words) > 0 {
			r.Name, r.Command = words[0], words[1:]
			r.Dir, _ = os.Getwd()
		}
		return nil
	}
	if len(words) > len(targets) {
		return fmt.Errorf("`ctl %s` does not understand %q", r.Do, words[len(targets)])
	}
	for i, word := range words {
		*targets[i] = word
	}
	if r.File != "" {
		path, err := filepath.Abs(r.File)
		if err != nil {
			return err
		}
		r.File = path
	}
	return nil
}

func keyValues(list []string) (map[string]string, error) {
	var values map[string]string
	for _, item := range list {
		key, value, ok := strings.Cut(item, "=")
		if !ok {
			return nil, fmt.Errorf("%q is not of the form key=value", item)
		}
		if values == nil {
			values = map[string]string{}
		}
		values[key] = value
	}
	return values, nil
}
