// A real OpenID Connect provider, and somebody who logs in to it.
//
//     node provider.mjs serve PORT KEY CERTIFICATE ALGORITHM CLIENT     serves until it is stopped
//     node provider.mjs login ISSUER CERTIFICATE CLIENT USER            prints the ID token of a user
//
// Serving makes keys of its own, for one algorithm, each time. Logging in does what a browser would: it follows
// redirects, keeps cookies, fills in the two forms of the provider, and exchanges the code for tokens.

import { createHash, generateKeyPairSync, randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import https from 'node:https';

const redirect = 'http://localhost:18000/callback';
const users = {
  ann: { email: 'ann@example.org', email_verified: true, groups: ['developers', 'everybody'] },
  bob: { email: 'bob@example.org', email_verified: false, groups: ['everybody'] },
};

async function serve([port, key, certificate, algorithm, client]) {
  const { Provider } = await import('oidc-provider');
  const curves = { ES256: 'P-256', ES384: 'P-384', ES512: 'P-521' };
  const made = curves[algorithm]
    ? generateKeyPairSync('ec', { namedCurve: curves[algorithm] })
    : generateKeyPairSync('rsa', { modulusLength: 2048 });
  const signing = { ...made.privateKey.export({ format: 'jwk' }), use: 'sig', kid: randomBytes(8).toString('hex') };
  const issuer = `https://localhost:${port}`;
  const provider = new Provider(issuer, {
    clients: [{
      client_id: client,
      token_endpoint_auth_method: 'none',
      redirect_uris: [redirect],
      application_type: 'native',
      id_token_signed_response_alg: algorithm,
    }],
    jwks: { keys: [signing] },
    enabledJWA: { idTokenSigningAlgValues: [algorithm] },
    cookies: { keys: [randomBytes(16).toString('hex')] },
    claims: { openid: ['sub'], profile: ['groups'], email: ['email', 'email_verified'] },
    // what was asked for stands in the token itself
    conformIdTokenClaims: false,
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, ...users[id] }) }),
  });
  const server = https.createServer({ key: readFileSync(key), cert: readFileSync(certificate) }, provider.callback());
  server.listen(Number(port), '127.0.0.1', () => console.log(`serving ${issuer}`));
}

/** One request, with the cookies that came so far. */
function ask(url, { ca, cookies = new Map(), form } = {}) {
  const body = form && new URLSearchParams(form).toString();
  const headers = { cookie: [...cookies].map(([name, value]) => `${name}=${value}`).join('; ') };
  if (body) headers['content-type'] = 'application/x-www-form-urlencoded';
  return new Promise((resolve, reject) => {
    const request = https.request(url, { ca, headers, method: body ? 'POST' : 'GET' }, (answer) => {
      for (const line of answer.headers['set-cookie'] ?? []) {
        const [, name, value] = line.match(/^([^=]+)=([^;]*)/);
        if (value) cookies.set(name, value);
        else cookies.delete(name);
      }
      let text = '';
      answer.on('data', (part) => { text += part; });
      answer.on('end', () => resolve({ status: answer.statusCode, to: answer.headers.location, text }));
    });
    request.on('error', reject);
    request.end(body);
  });
}

async function login([issuer, certificate, client, user]) {
  const ca = readFileSync(certificate);
  const described = JSON.parse((await ask(`${issuer}/.well-known/openid-configuration`, { ca })).text);
  const verifier = randomBytes(32).toString('base64url');
  const begin = new URL(described.authorization_endpoint);
  begin.search = new URLSearchParams({
    client_id: client,
    response_type: 'code',
    scope: 'openid profile email',
    redirect_uri: redirect,
    code_challenge: createHash('sha256').update(verifier).digest('base64url'),
    code_challenge_method: 'S256',
  });
  const session = { ca, cookies: new Map() };
  let url = begin.href;
  for (let steps = 0; !url.startsWith(redirect); steps += 1) {
    if (steps > 20) throw new Error(`no end at ${url}`);
    let answer = await ask(url, session);
    if (!answer.to) {
      // a page with a form: who one is, or whether the client may know
      const prompt = answer.text.match(/name="prompt" value="(\w+)"/)?.[1];
      if (!prompt) throw new Error(`${answer.status} at ${url}: ${answer.text.slice(0, 300)}`);
      const form = prompt === 'login' ? { prompt, login: user, password: 'any' } : { prompt };
      answer = await ask(url, { ...session, form });
    }
    url = new URL(answer.to, url).href;
  }
  const code = new URL(url).searchParams.get('code');
  if (!code) throw new Error(`no code at ${url}`);
  const form = { grant_type: 'authorization_code', client_id: client, redirect_uri: redirect, code, code_verifier: verifier };
  const answer = await ask(described.token_endpoint, { ca, form });
  const token = JSON.parse(answer.text).id_token;
  if (!token) throw new Error(`no ID token: ${answer.text}`);
  console.log(token);
}

const [what, ...rest] = process.argv.slice(2);
await { serve, login }[what](rest);
