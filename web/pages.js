// The forms of the sign-in pages: each is sent to a route under /v1/auth, and what went wrong is said in words.

const show = (element, isShown) => {
  element.hidden = !isShown;
};

/** Posts JSON. Answers status, body (an empty object where there is none) and the seconds to wait, where told. */
async function post(path, body) {
  const response = await fetch(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  const text = await response.text();
  return { status: response.status, body: text === "" ? {} : JSON.parse(text), wait: Number(response.headers.get("retry-after") ?? 0) };
}

const words = {
  MFA_REQUIRED: "Enter the code of your authenticator app, or a backup code.",
  MFA_INVALID: "This code is wrong, too old, or was used before. Wait for the next one, or use a backup code.",
};

/** What an answer that is no success means to the person. */
function wordsOf({ status, body, wait }, action) {
  if (body.error === "ACCOUNT_LOCKED")
    return `Too many failed attempts. Try again after ${new Date(body.locked_until).toLocaleTimeString()}.`;
  if (status === 429) return `That was too often. Try again in ${Math.max(1, Math.ceil(wait / 60))} min.`;
  if (words[body.error]) return words[body.error];
  if (status === 401 && action === "join") return "Your email has an account already, and this is not its password.";
  if (status === 401) return "The email or the password is wrong.";
  if (status === 410) return "This link was used already or is too old. Ask for a new one.";
  if (status === 404) return "This link is not complete. Copy the whole link from the mail.";
  if (status === 422 && Array.isArray(body.details))
    return body.details
      .map(({ message }) => `It ${message}.`)
      .join(" ")
      .replace("It is required", "Required");
  if (status >= 500) return "Something went wrong on our side. Try again in a moment.";
  return body.message ?? "That did not work. Try again.";
}

function say(form, text, isNote = false) {
  const alert = form.querySelector(".alert");
  alert.classList.toggle("is-note", isNote);
  alert.textContent = text;
  show(alert, text !== "");
}

/** The first field that is empty or not in its form, told in words. */
function firstProblem(form) {
  for (const input of form.querySelectorAll("input:not([disabled])")) {
    const isWrong = !input.checkValidity();
    input.toggleAttribute("aria-invalid", false);
    if (isWrong) {
      input.setAttribute("aria-invalid", "true");
      input.focus();
      const label = form.querySelector(`label[for="${input.id}"]`).textContent;
      return input.validity.valueMissing ? `${label}: required.` : `${label}: check what you typed.`;
    }
  }
  return "";
}

/** Asks for the second factor: the field appears where the form waits for it. */
function askForCode(form) {
  const field = form.querySelector('[data-field="code"]');
  const input = field.querySelector("input");
  show(field, true);
  input.disabled = false;
  input.required = true;
  input.value = "";
  input.focus();
}

async function beginToEnrol() {
  const { status, body } = await post("/v1/auth/mfa/totp", {});
  if (status !== 200) return location.reload();
  const section = document.querySelector('[data-step="enrol"]');
  for (const element of document.querySelectorAll("main > h1, main > form, main > .hint")) show(element, false);
  const picture = document.createElement("img");
  picture.alt = "QR code of the key below";
  picture.src = `data:image/svg+xml,${encodeURIComponent(body.qr_svg)}`;
  section.querySelector(".qr").replaceChildren(picture);
  section.querySelector(".key code").textContent = body.secret.replace(/(.{4})(?=.)/g, "$1 ");
  show(section, true);
  section.querySelector("input").focus();
}

function showBackupCodes(codes) {
  show(document.querySelector('[data-step="enrol"]'), false);
  const section = document.querySelector('[data-step="backup"]');
  const items = codes.map((code) => {
    const item = document.createElement("li");
    item.textContent = code;
    return item;
  });
  section.querySelector(".codes").replaceChildren(...items);
  show(section, true);
  section.querySelector("a").focus();
}

const actions = {
  "sign-in": {
    send: (_form, values) => post("/v1/auth/login", values),
    done: (form, body) => (body.mfa_enrollment_required ? beginToEnrol() : location.assign(form.dataset.next)),
  },
  "sign-out": { send: () => post("/v1/auth/logout", {}), done: (form) => location.assign(form.dataset.next) },
  enrol: { send: (_form, values) => post("/v1/auth/mfa/totp/confirm", values), done: (_form, body) => showBackupCodes(body.backup_codes) },
  forgot: { send: (_form, values) => post("/v1/auth/password/forgot", values), done: showDone },
  reset: { send: (form, values) => post("/v1/auth/password/reset", { token: form.dataset.token, ...values }), done: showDone },
  "confirm-email": { send: (form) => post("/v1/auth/email/confirm", { token: form.dataset.token }), done: showDone },
  join: {
    send: (form, values) => post("/v1/auth/invitations/accept", { token: form.dataset.token, ...values }),
    done: (form, body) => (body.mfa_enrollment_required ? location.assign("/sign-in") : location.assign(form.dataset.next)),
  },
};

/** What the page says once it is done, with what the answer adds to it. */
function showDone(form, body) {
  show(form, false);
  for (const note of document.querySelectorAll("[data-told]")) show(note, body[note.dataset.told] === true);
  show(document.querySelector(".done"), true);
}

for (const form of document.querySelectorAll("form[data-action]")) {
  const { send, done } = actions[form.dataset.action];
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const problem = firstProblem(form);
    say(form, problem);
    if (problem !== "") return;
    const button = form.querySelector('button[type="submit"]');
    button.disabled = true;
    form.setAttribute("aria-busy", "true");
    try {
      const values = Object.fromEntries([...new FormData(form)].filter(([, value]) => value !== ""));
      const answer = await send(form, values);
      if (answer.status < 300) await done(form, answer.body);
      else {
        say(form, wordsOf(answer, form.dataset.action), answer.body.error === "MFA_REQUIRED");
        if (answer.body.error === "MFA_REQUIRED" || answer.body.error === "MFA_INVALID") askForCode(form);
      }
    } catch {
      say(form, "The server cannot be reached. Check the connection and try again.");
    } finally {
      button.disabled = false;
      form.removeAttribute("aria-busy");
    }
  });
}

for (const button of document.querySelectorAll("[data-reveal]")) {
  button.addEventListener("click", () => {
    const input = document.getElementById(button.dataset.reveal);
    const isShown = input.type === "password";
    input.type = isShown ? "text" : "password";
    button.textContent = isShown ? "Hide" : "Show";
    button.setAttribute("aria-label", `${button.textContent} the password`);
  });
}
