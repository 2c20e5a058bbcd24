// Carries a label of the namespace, such as its cost centre, to every pod that is made in it.
//
// Each interface of the world `metadata-propagator` is one exported object, with names in camelCase.

const schema = {
  $schema: "https://json-schema.org/draft/2020-12/schema",
  description: "What can be configured.",
  type: "object",
  properties: {
    label: { description: "The label's key.", type: "string", default: "cost-centre" },
  },
  additionalProperties: false,
};

let label = "cost-centre";

export const plugin = {
  describe() {
    return {
      name: "pointsman-example-javascript-labels",
      version: "0.1.0",
      points: ["metadata-propagation"],
      configSchema: JSON.stringify(schema),
      features: [],
      wantsTime: false,
    };
  },

  /** Takes the configuration. What is thrown is the sentence that the host shows. */
  configure(text) {
    const config = JSON.parse(text);
    if (config === null || typeof config !== "object" || Array.isArray(config)) {
      throw "the configuration doesn't fit: it must be an object";
    }
    const unknown = Object.keys(config).find((name) => name !== "label");
    if (unknown !== undefined) {
      throw `the configuration doesn't fit: unknown field \`${unknown}\`, expected \`label\``;
    }
    const { label: given = "cost-centre" } = config;
    if (typeof given !== "string") {
      throw "the configuration doesn't fit: `label` must be a string";
    }
    label = given;
  },
};

export const metadataPropagation = {
  /** Adds the label to the pods, unless something nearer to them has set it. */
  propagate({ subject, target, labels, annotations }) {
    // All that is there already must be in the answer, or the target would lose it.
    const answer = { labels, annotations, dropped: [], reasons: [] };
    const given = subject.namespaceLabels.find((entry) => entry.key === label);
    const isSet = labels.some((placed) => placed.key === label);
    if (given === undefined || isSet || target.place !== "pod-template") {
      return answer;
    }
    const { value } = given;
    answer.labels = [...labels, { key: label, value, layer: "namespace" }];
    answer.reasons = [{ code: "NamespaceLabel", message: `The namespace's ${label} is ${value}.` }];
    return answer;
  },
};
