/** Which of Kubernetes' own tests run, and which cannot. @module */

/** Regular expressions for names of specs. */
export interface SpecPart {
  readonly focus: string;
  readonly skip?: string;
}

/** By the words that choose them. */
export const SPEC_PARTS: Readonly<Record<string, SpecPart>> = {
  sample: { focus: "sample" },
  conformance: { focus: "\\[sig-network\\].*\\[Conformance\\]" },
  network: { focus: "\\[sig-network\\]", skip: "\\[Conformance\\]|NetworkPolicy" },
  policy: { focus: "NetworkPolicy" },
};

/** What this kernel or these nodes cannot do, whatever the network does. */
export const IMPOSSIBLE_SPECS: readonly { readonly pattern: string; readonly reason: string }[] = [];
