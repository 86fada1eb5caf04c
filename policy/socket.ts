/** What the part is asked on its socket: a line of JSON there, and one back. @module */
import type { PolicyQuestion, PolicyVerdict } from "./explain.ts";

export const policySocketPath = (stateDirectory: string): string => `${stateDirectory}/socket`;

/** A plugin asks, when it has closed what it attached. */
export interface AttachRequest {
  readonly namespace: string;
  readonly name: string;
  readonly uid?: string;
  readonly interface: string;
  readonly ips: readonly string[];
  readonly container: string;
}

/** The command `cni policy test` asks this. */
export interface TestRequest {
  readonly test: PolicyQuestion;
}

export type PolicyRequest = AttachRequest | TestRequest;

export type PolicyAnswer =
  | { readonly state: "enforced" | "closed" }
  | { readonly verdict: PolicyVerdict }
  | { readonly error: string };
