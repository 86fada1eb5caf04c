import { type LabelObject, type Labels, labelsOf, labelsText } from "../select/labels.ts";

/** What of a Namespace object is about policy. */
export interface PolicyNamespace {
  readonly uid: string;
  readonly name: string;
  readonly labels: Labels;
}

/** The parts of a Namespace that {@linkcode parseNamespace} reads. @see Kubernetes API v1 Namespace */
export interface NamespaceObject {
  readonly metadata: { readonly uid: string; readonly name: string; readonly labels?: LabelObject };
}

export function parseNamespace({ metadata: { uid, name, labels } }: NamespaceObject): PolicyNamespace {
  return { uid, name, labels: labelsOf(labels) };
}

export function isSameNamespace(a: PolicyNamespace, b: PolicyNamespace): boolean {
  return a.uid === b.uid && labelsText(a.labels) === labelsText(b.labels);
}
