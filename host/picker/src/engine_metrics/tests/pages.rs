//! A shortened page of each engine.

pub(super) const VLLM: &str = r#"# HELP python_gc_objects_collected_total Objects collected during gc
# TYPE python_gc_objects_collected_total counter
python_gc_objects_collected_total{generation="0"} 10943.0
python_gc_objects_collected_total{generation="1"} 1184.0
# TYPE process_resident_memory_bytes gauge
process_resident_memory_bytes 6.21805568e+09
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="qwen3-32b"} 12.0
vllm:num_requests_running{engine="1",model_name="qwen3-32b"} 9.0
# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="qwen3-32b"} 7.0
vllm:num_requests_waiting{engine="1",model_name="qwen3-32b"} 0.0
# TYPE vllm:num_requests_waiting_by_reason gauge
vllm:num_requests_waiting_by_reason{engine="0",model_name="qwen3-32b",reason="capacity"} 6.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="qwen3-32b",reason="deferred"} 1.0
# TYPE vllm:engine_sleep_state gauge
vllm:engine_sleep_state{engine="0",model_name="qwen3-32b",sleep_state="awake"} 1.0
# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="qwen3-32b"} 0.8125
vllm:kv_cache_usage_perc{engine="1",model_name="qwen3-32b"} 0.1796875
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0",model_name="qwen3-32b"} 1.834224e+06
vllm:prefix_cache_queries_total{engine="1",model_name="qwen3-32b"} 768.0
# TYPE vllm:prefix_cache_queries_created gauge
vllm:prefix_cache_queries_created{engine="0",model_name="qwen3-32b"} 1.7642213342815e+09
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{engine="0",model_name="qwen3-32b"} 1.102304e+06
vllm:prefix_cache_hits_total{engine="1",model_name="qwen3-32b"} 0.0
# TYPE vllm:external_prefix_cache_hits_total counter
vllm:external_prefix_cache_hits_total{engine="0",model_name="qwen3-32b"} 17.0
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{engine="0",model_name="qwen3-32b"} 3.0
# HELP vllm:time_to_first_token_seconds Histogram of time to first token in seconds.
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.001",model_name="qwen3-32b"} 0.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.25",model_name="qwen3-32b"} 811.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="qwen3-32b"} 920.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="qwen3-32b"} 920.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="qwen3-32b"} 190.45137715339661
# HELP vllm:lora_requests_info Running stats on lora requests.
# TYPE vllm:lora_requests_info gauge
vllm:lora_requests_info{max_lora="4",running_lora_adapters="",waiting_lora_adapters=""} 1.764221400112e+09
vllm:lora_requests_info{max_lora="4",running_lora_adapters="sql,legal-de",waiting_lora_adapters="sql"} 1.764221977804e+09
vllm:lora_requests_info{max_lora="4",running_lora_adapters="sql",waiting_lora_adapters="legal-de"} 1.764221976993e+09
# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",cache_dtype="auto",enable_prefix_caching="True",engine="0",num_cpu_blocks="None",num_gpu_blocks="27648",num_gpu_blocks_override="None",sliding_window="None"} 1.0
vllm:cache_config_info{block_size="16",cache_dtype="auto",enable_prefix_caching="True",engine="1",num_cpu_blocks="None",num_gpu_blocks="27648",num_gpu_blocks_override="None",sliding_window="None"} 1.0
"#;

pub(super) const SGLANG: &str = r#"# HELP sglang:num_running_reqs The number of running requests.
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{dp_rank="0",engine_type="unified",model_name="deepseek-v3",pp_rank="0",priority="",tp_rank="0"} 24.0
sglang:num_running_reqs{dp_rank="0",engine_type="unified",model_name="deepseek-v3",pp_rank="0",priority="5",tp_rank="0"} 20.0
sglang:num_running_reqs{dp_rank="0",engine_type="unified",model_name="deepseek-v3",pp_rank="0",priority="None",tp_rank="0"} 4.0
sglang:num_running_reqs{dp_rank="1",engine_type="unified",model_name="deepseek-v3",pp_rank="0",priority="",tp_rank="2"} 16.0
sglang:num_running_reqs{dp_rank="1",engine_type="unified",model_name="deepseek-v3",pp_rank="0",priority="",tp_rank="3"} 15.0
# HELP sglang:num_queue_reqs The number of requests in the waiting queue.
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{dp_rank="0",engine_type="unified",model_name="deepseek-v3",pp_rank="0",priority="",tp_rank="0"} 3.0
sglang:num_queue_reqs{dp_rank="0",engine_type="unified",model_name="deepseek-v3",pp_rank="0",priority="5",tp_rank="0"} 3.0
sglang:num_queue_reqs{dp_rank="1",engine_type="unified",model_name="deepseek-v3",pp_rank="0",priority="",tp_rank="2"} 6.0
sglang:num_queue_reqs{dp_rank="1",engine_type="unified",model_name="deepseek-v3",pp_rank="0",priority="",tp_rank="3"} 6.0
# TYPE sglang:num_grammar_queue_reqs gauge
sglang:num_grammar_queue_reqs{dp_rank="0",engine_type="unified",model_name="deepseek-v3",pp_rank="0",priority="",tp_rank="0"} 1.0
# TYPE sglang:token_usage gauge
sglang:token_usage{dp_rank="0",engine_type="unified",model_name="deepseek-v3",pp_rank="0",priority="",tp_rank="0"} 0.62
sglang:token_usage{dp_rank="1",engine_type="unified",model_name="deepseek-v3",pp_rank="0",priority="",tp_rank="2"} 0.91
# TYPE sglang:full_token_usage gauge
sglang:full_token_usage{dp_rank="0",engine_type="unified",model_name="deepseek-v3",pp_rank="0",priority="",tp_rank="0"} 0.99
# TYPE sglang:fwd_occupancy gauge
sglang:fwd_occupancy{dp_rank="0",engine_type="unified",model_name="deepseek-v3",pp_rank="0",priority="",tp_rank="0"} NaN
# TYPE sglang:page_size gauge
sglang:page_size{dp_rank="0",engine_type="unified",model_name="deepseek-v3",pp_rank="0",priority="",tp_rank="0"} 64.0
sglang:page_size{dp_rank="1",engine_type="unified",model_name="deepseek-v3",pp_rank="0",priority="",tp_rank="2"} 64.0
# TYPE sglang:num_pages gauge
sglang:num_pages{dp_rank="0",engine_type="unified",model_name="deepseek-v3",pp_rank="0",priority="",tp_rank="0"} 6000.0
sglang:num_pages{dp_rank="1",engine_type="unified",model_name="deepseek-v3",pp_rank="0",priority="",tp_rank="2"} 6000.0
sglang:num_pages{dp_rank="1",engine_type="unified",model_name="deepseek-v3",pp_rank="0",priority="",tp_rank="3"} 6000.0
# TYPE sglang:prompt_tokens_total counter
sglang:prompt_tokens_total{model_name="deepseek-v3"} 5.2911804e+07
"#;

pub(super) const TRTLLM_SERVE: &str = r#"# HELP trtllm_request_success_total Count of successfully processed requests.
# TYPE trtllm_request_success_total counter
trtllm_request_success_total{engine_type="pytorch",finished_reason="stop",model_name="llama-3.3-70b"} 411.0
# HELP trtllm_num_requests_running Number of active requests
# TYPE trtllm_num_requests_running gauge
trtllm_num_requests_running{engine_type="pytorch",model_name="llama-3.3-70b",pid="1"} 3.0
# HELP trtllm_num_requests_waiting Number of queued requests
# TYPE trtllm_num_requests_waiting gauge
trtllm_num_requests_waiting{engine_type="pytorch",model_name="llama-3.3-70b",pid="1"} 0.0
# HELP trtllm_kv_cache_utilization KV cache utilization
# TYPE trtllm_kv_cache_utilization gauge
trtllm_kv_cache_utilization{engine_type="pytorch",model_name="llama-3.3-70b",pid="1"} 0.25
trtllm_kv_cache_host_utilization{engine_type="pytorch",model_name="llama-3.3-70b",pid="1"} 0.75
# TYPE trtllm_kv_cache_max_blocks gauge
trtllm_kv_cache_max_blocks{engine_type="pytorch",model_name="llama-3.3-70b",pid="1"} 18804.0
trtllm_kv_cache_free_blocks{engine_type="pytorch",model_name="llama-3.3-70b",pid="1"} 14103.0
# TYPE trtllm_kv_cache_tokens_per_block gauge
trtllm_kv_cache_tokens_per_block{engine_type="pytorch",model_name="llama-3.3-70b",pid="1"} 32.0
"#;

pub(super) const TRITON_TENSORRT_LLM: &str = r#"# HELP nv_inference_request_success Number of successful inference requests, all batch sizes
# TYPE nv_inference_request_success counter
nv_inference_request_success{model="ensemble",version="1"} 90
nv_inference_request_success{model="tensorrt_llm",version="1"} 90
# TYPE nv_inference_pending_request_count gauge
nv_inference_pending_request_count{model="tensorrt_llm",version="1"} 11
# HELP nv_trt_llm_request_metrics TRT LLM request metrics
# TYPE nv_trt_llm_request_metrics gauge
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="waiting",version="1"} 2
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="context",version="1"} 1
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="scheduled",version="1"} 6
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="max",version="1"} 512
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="active",version="1"} 8
# TYPE nv_trt_llm_runtime_memory_metrics gauge
nv_trt_llm_runtime_memory_metrics{memory_type="gpu",model="tensorrt_llm",version="1"} 1610236
# HELP nv_trt_llm_kv_cache_block_metrics TRT LLM KV cache block metrics
# TYPE nv_trt_llm_kv_cache_block_metrics gauge
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="tensorrt_llm",version="1"} 0.4375
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="tokens_per",model="tensorrt_llm",version="1"} 64
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used",model="tensorrt_llm",version="1"} 2688
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="free",model="tensorrt_llm",version="1"} 3456
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max",model="tensorrt_llm",version="1"} 6144
"#;

pub(super) const TRITON: &str = r#"# HELP nv_inference_exec_count Number of model executions performed (does not include cached requests)
# TYPE nv_inference_exec_count counter
nv_inference_exec_count{model="resnet50",version="1"} 40961
# HELP nv_inference_pending_request_count Instantaneous number of pending requests awaiting execution per-model.
# TYPE nv_inference_pending_request_count gauge
nv_inference_pending_request_count{model="resnet50",version="1"} 4
nv_inference_pending_request_count{model="bert",version="2"} 1
# HELP nv_gpu_utilization GPU utilization rate [0.0 - 1.0)
# TYPE nv_gpu_utilization gauge
nv_gpu_utilization{gpu_uuid="GPU-3f6c"} 0.42
"#;
