"""Names of packages by ecosystem, normalized: those that many users install, and known ones that resemble them."""

# The packages that are installed most, and those that users most often name on a command line.
POPULAR = {
    "npm": """
acorn agent-base ajv angular ansi-escapes ansi-regex ansi-styles anymatch apollo-server argparse async asynckit
autoprefixer aws-sdk axios babel-cli babel-core babel-loader balanced-match bcrypt bcryptjs bluebird body-parser
bootstrap bower boxen brace-expansion braces browserify browserslist buffer bunyan bytes call-bind-apply-helpers
call-bound callsites camelcase caniuse-lite chai chalk chart.js cheerio chokidar ci-info classnames cli-table cliui
coffee-script coffeescript color-convert color-name colors combined-stream commander concat-map concurrently
content-disposition convert-source-map cookie cookie-parser core-js corepack cors cosmiconfig create-react-app
cross-env cross-spawn css-loader csstype cypress d3 date-fns dayjs debug delayed-stream discord.js doctrine dotenv
dunder-proto eastasianwidth electron electron-builder electron-to-chromium emoji-regex encodeurl entities
es-define-property es-errors es-object-atoms es-set-tostringtag esbuild escalade escape-string-regexp eslint
eslint-scope eslint-visitor-keys espree esprima estraverse estree-walker esutils ethers execa expo express
express-session faker fast-deep-equal fast-glob fastify fastq figlet file-entry-cache fill-range finalhandler
find-up firebase firebase-admin flat-cache foreground-child forever form-data formik fs-extra function-bind
get-caller-file get-intrinsic get-proto get-stream glob glob-parent globals graceful-fs graphql grunt gulp
handlebars hapi has-flag has-symbols has-tostringtag hasown helmet highlight.js html-webpack-plugin http-errors
http-proxy http-proxy-agent http-server https-proxy-agent human-signals husky iconv-lite ignore immer import-fresh
inherits inquirer ioredis is-arrayish is-core-module is-docker is-extglob is-fullwidth-code-point is-glob is-number
is-stream is-wsl isarray isexe jackspeak jest jest-util jest-worker joi jquery js-tokens js-yaml jsesc
json-schema-traverse json-server json5 jsonfile jsonwebtoken kind-of knex lerna lightningcss-linux-x64-musl
lint-staged locate-path lodash lru-cache luxon magic-string make-dir marked math-intrinsics micromatch mime-db
mime-types mimic-fn minimatch minimist minipass mkdirp mocha moment mongodb mongoose morgan multer mustache mysql
mysql2 nanoid negotiator next nock node-fetch node-releases node-sass nodemailer nodemon normalize-path npm-run-path
nunjucks nuxt object-assign object-inspect onetime openai optionator ora p-limit p-locate parcel parse-json parse5
passport path-exists path-key path-parse path-scurry path-to-regexp path-type picocolors picomatch playwright pm2
postcss postcss-selector-parser prettier pretty-format prisma pug punycode puppeteer range-parser raw-body react
react-dom react-is react-native react-redux react-router react-router-dom react-scripts readable-stream readdirp
redis redux redux-thunk regenerator-runtime request require-from-string resolve resolve-from restify restore-cursor
rimraf rollup rxjs safe-buffer safer-buffer sass scheduler schema-utils semver sequelize serve setprototypeof sharp
shebang-command shebang-regex shelljs side-channel signal-exit sinon slash socket.io source-map source-map-js
source-map-support statuses storybook string-width string_decoder strip-ansi strip-bom strip-final-newline
strip-json-comments stripe style-loader styled-components stylus superagent supertest supports-color
supports-preserve-symlinks-flag svelte tailwindcss three through2 to-regex-range ts-jest ts-node tslib turbo twilio
type-check type-fest typeorm typescript underscore undici-types universalify update-browserslist-db uri-js
util-deprecate uuid validator vite vitest vue web3 webidl-conversions webpack webpack-cli webpack-dev-server
whatwg-url which winston wrap-ansi wrappy write-file-atomic ws yallist yargs yargs-parser yocto-queue yup zone.js
zustand
""",
    "pypi": """
accelerate aiobotocore aiohappyeyeballs aiohttp aiosignal alembic annotated-doc annotated-types ansible anthropic
anyio arrow async-timeout attrs awscli azure-core azure-identity bcrypt beautifulsoup4 bitcoinlib black blinker
bokeh boto3 botocore build cachetools celery certifi cffi chardet charset-normalizer click colorama contourpy
coverage cryptography cycler cython dash dask databricks-sql-connector datasets decorator defusedxml deprecated
diffusers dill discord discord-py distlib distro django djangorestframework dnspython docker docstring-parser
docutils duckdb editables email-validator et-xmlfile exceptiongroup fabric factory-boy faker fastapi filelock flake8
flask fonttools frozenlist fsspec gensim gitdb gitpython google-api-core google-api-python-client google-auth
google-cloud-aiplatform google-cloud-core google-cloud-storage google-crc32c google-genai google-resumable-media
googleapis-common-protos gradio greenlet grpcio grpcio-status grpcio-tools gunicorn h11 hatchling hf-xet httpcore
httptools httpx httpx-sse huggingface-hub hypothesis idna importlib-metadata iniconfig ipykernel ipython isodate
isort itsdangerous jaraco-classes jaraco-context jaraco-functools jeepney jinja2 jiter jmespath joblib jsonpointer
jsonschema jsonschema-specifications jupyter jupyterlab keras keyring kiwisolver kubernetes langchain lightgbm
litellm loguru lxml mako markdown-it-py markupsafe matplotlib mcp mdurl mkdocs more-itertools msal msgpack multidict
multiprocess mypy mypy-extensions mysqlclient networkx nltk nodeenv notebook numba numpy oauthlib openai
opencv-python openpyxl opentelemetry-api opentelemetry-exporter-otlp opentelemetry-exporter-otlp-proto-common
opentelemetry-exporter-otlp-proto-grpc opentelemetry-exporter-otlp-proto-http opentelemetry-instrumentation
opentelemetry-proto opentelemetry-sdk opentelemetry-semantic-conventions orjson packaging pandas paramiko passlib
pathspec pexpect pillow pip pipenv platformdirs playwright plotly pluggy poetry poetry-core polars pre-commit
prometheus-client prompt-toolkit propcache proto-plus protobuf psutil psycopg2 psycopg2-binary ptyprocess pyarrow
pyasn1 pyasn1-modules pyautogui pycparser pycryptodome pydantic pydantic-ai-slim pydantic-core pydantic-graph
pydantic-settings pygments pyinstaller pyjwt pylint pymongo pymysql pynacl pynput pyopenssl pyparsing
pyproject-hooks pytest pytest-asyncio pytest-cov pytest-json-ctrf python-dateutil python-discovery python-dotenv
python-multipart pytz pyyaml redis referencing regex requests requests-oauthlib requests-toolbelt rich rpds-py rsa
ruamel-yaml ruff s3fs s3transfer scikit-learn scipy scrapy seaborn secretstorage selenium sentencepiece setuptools
sglang shellingham simplejson six smmap sniffio snowflake-connector-python sortedcontainers soupsieve spacy sphinx
sqlalchemy sse-starlette starlette statsmodels streamlit sympy tabulate telethon tenacity tensorflow termcolor
textual threadpoolctl tiktoken tokenizers toml tomli tomlkit torch torchvision tox tqdm transformers
trove-classifiers tweepy twine typer typing-extensions typing-inspection tzdata tzlocal ujson ultralytics
uritemplate urllib3 uv uvicorn uvloop virtualenv watchdog watchfiles wcwidth web3 websocket-client websockets
werkzeug wheel wrapt xgboost xxhash yarl zipp zstandard
""",
    "cargo": """
actix_rt actix_web anchor_cli anchor_lang anyhow argon2 arrayvec askama async_std async_trait axum backtrace base64
bcrypt bevy bincode bindgen bitflags brotli bytes cargo_audit cargo_deny cargo_edit cargo_expand cargo_generate
cargo_llvm_cov cargo_make cargo_nextest cargo_outdated cargo_release cargo_tarpaulin cargo_watch cbindgen chrono
ciborium clap color_eyre colored config console crc32fast criterion crossbeam crossbeam_channel crossterm csv ctrlc
dashmap deadpool derive_builder derive_more dialoguer diesel diesel_cli digest dioxus directories dirs dotenv
dotenvy eframe egui either env_logger ethers fd_find flate2 futures futures_util generic_array getrandom globset
handlebars hashbrown heck hex_literal html5ever httparse hyper hyperfine ignore image imageproc indexmap indicatif
insta itertools js_sys jsonwebtoken lazy_static leptos lettre libc libloading libp2p log4rs logos mdbook memchr
memmap2 miette mime_guess minijinja mockall mongodb nalgebra native_tls ndarray nix nom notify num_bigint num_cpus
num_traits once_cell openssl openssl_sys ordered_float parking_lot percent_encoding pest petgraph postgres
proc_macro2 proptest prost quick_xml quickcheck quote rand rand_core ratatui rayon redis regex reqwest ring ripgrep
rmp_serde rocket rstest rusqlite rust_decimal rustls sccache scraper sea_orm semver serde serde_derive serde_json
serde_yaml sha2 signal_hook simplelog smallvec socket2 solana_program solana_sdk sqlx sqlx_cli starship structopt
strum strum_macros subxt syn tauri tauri_cli tempfile termcolor thiserror time tokei tokio tokio_postgres
tokio_stream tokio_util toml toml_edit tonic tower tower_http tracing tracing_subscriber trunk typenum typst_cli
unicode_segmentation unicode_width uuid walkdir warp wasm_bindgen wasm_bindgen_cli wasm_pack web_sys wgpu winapi
windows_sys winit wiremock yew zoxide zstd
""",
    "rubygems": """
actionmailer actionpack active_model_serializers activejob activemodel activerecord activesupport addressable
asciidoctor aws-sdk aws-sdk-core aws-sdk-s3 bcrypt better_errors bigdecimal bootsnap bootstrap bootstrap-sass
brakeman bugsnag builder bundler byebug cancancan capistrano capybara carrierwave chef cocoapods colorize
concurrent-ruby cucumber dalli database_cleaner debug delayed_job devise dotenv dotenv-rails erubi ethon excon
factory_bot factory_bot_rails faker faraday fastlane foreman friendly_id grape graphql guard haml hanami highline
httparty httpclient i18n importmap-rails inspec irb jbuilder jekyll jquery-rails json jwt kaminari kramdown
letter_opener liquid listen logger mechanize middleman mime-types minitest mongoid msgpack multi_json mysql2
net-http net-ssh newrelic_rpm nokogiri oauth2 omniauth omniauth-oauth2 optimist pagy paint paper_trail paperclip
parallel parser pastel prism pry-byebug pry-rails public_suffix puma pundit puppet racc rack rack-cors rack-test
rails railties rainbow rake ransack rdoc redis reline resque rest-client rexml rollbar rspec rspec-core
rspec-expectations rspec-mocks rspec-rails rubocop rubocop-rails rubocop-rspec ruby-lsp ruby-progressbar rubyzip
sass-rails sassc selenium-webdriver sentry-rails sentry-ruby sequel shoulda-matchers shrine sidekiq simple_form
simplecov sinatra slim-rails slop solargraph spring sqlite3 stimulus-rails stripe strong_migrations terminal-table
thor timecop travis tty-prompt turbo-rails turbolinks twilio-ruby typhoeus tzinfo unicorn vagrant vcr web-console
webdrivers webmock webpacker webrick whenever will_paginate yard zeitwerk
""",
}

# Packages of their own whose names differ by one letter from a popular name.
NEIGHBOURS = {
    "npm": """
amocha angular2 ansi-escape ansistyles args-parser as-number asarray async-kit asyncc auto-prefixer aws-cdk axiom
bcrypto bmocha body-parse bootstrap3 bowser brace brakes browserlist buffers callsite camel-case chartjs cjs-loader
class-names classname cli-table2 cli-table3 color color-namer colord colorts combined-stream2 cookie-parse
cookieparser cookies corejs cose-js crypt csso-loader csv-loader dapjs dargs data-fns dot-env dts-jest eclint
enquirer es-jest esplint esprimaq findup flash form-data2 formdata formic formio fs-extra2 fs.extra gaxios getstream
global grant graphiql handlebar has-own highlightjs http-error http-serve http2-proxy httperrors inherit inquire
inquirer2 is-array is-blob is-node isnumber isstream it-glob jslint json2 json3 json8 jsona jsonc jsonh jsonl jsonp
jsonq kindof lrucache marker masked mime-type mimer mimetypes minimost mkdir mkdir-p mkdirp2 mkdirs moments mongo-db
mquery msbuild mssql multer2 mysql8 nano-id ntypescript object.assign one-time openapi pargs parse parsejson parser
path-parser path-to-regex preact preact-redux preact-router prequest prettierx pretty-format2 prism prisma1 ps-node
punycode2 query reach reach-router react-if react-router5 react-script react-vis reactn readdir redux-thunks
requests reqwest resolver rifraf rsolve rsync schedule scrypt scss-loader semiver server servez servie set-proto
slash2 smash socket-io socketio source-map-cjs sourcemap stash storyblok strip styled-component styles styles-loader
stylis synckit tedis there through through3 throughv ts-lib ts-stream tslab tslint tsutils ttypescript typecheck
urijs validators vargs vasync vrtest wargs xbytes
""",
    "pypi": """
authlib beautifulsoup bpython cattrs cchardet crick ctransformers cwcwidth dataset datazets djongo dydantic fabric2
fabric3 fastai git-python gitdb2 google-oauth grequests gsutil hjson httpr hyper ijson ipytest isolate jiwer mocker
myjwt ngboost openapi psycopg psycopg-binary pyaml pyasn pycryptodomex pylink pymantic pymssql pytest-csv retworkx
scapy scipp scrypt simpy slack smmap2 spython tombi torchx unicorn uri-template usort vbuild vyper websocket willow
xoto3
""",
    "cargo": """
bindgen_cli color_eyre2 confik consola dirs2 future hashmap konfig notifyr pocket regexp scrypt serde_jsonc socket
""",
    "rubygems": """
builders colored colorized colorizer loggers mysql oauth parse puppets rescue scrypt sequels sqlite string
""",
}
