/** What the part is asked on its socket: a line of JSON there, and one back. @module */
import type {
  AttachAnswer,
  AttachRequest,
  SyncedAnswer,
  SyncedQuestion,
} from "../plugins/lib/policy/attach_request.ts";
import type { PolicyQuestion, PolicyVerdict } from "./explain.ts";

export const policySocketPath = (stateDirectory: string): string => `${stateDirectory}/socket`;

/** The command `cni policy test` asks this. */
export interface TestRequest {
  readonly test: PolicyQuestion;
}

export type PolicyRequest = AttachRequest | SyncedQuestion | TestRequest;

export type PolicyAnswer =
  | AttachAnswer
  | SyncedAnswer
  | { readonly verdict: PolicyVerdict }
  | { readonly error: string };
